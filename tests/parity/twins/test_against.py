"""A saved check: what breaks its seal, and what running it again finds out."""

import json
from pathlib import Path

import pytest

import vit_torch
from parity import save
from parity.cli import main
from parity.faults import inject
from parity.measure.shown import write_json
from parity.twins import against
from parity.twins.check import check_config
from tests.support.tiny import TINY

SMALL = TINY.replace(depth=1)
ASKED = {"dtypes": ["float64"], "batch_size": 2}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of a check of one small schema."""
    path = tmp_path_factory.mktemp("saved") / "saved.json"
    write_json(path, against.sealed(check_config(SMALL, subject="tiny", **ASKED), ASKED, None))
    return path


def forged(path, source, change):
    """A file that somebody changed, and sealed again."""
    content = json.loads(source.read_text())
    content.pop(against.SEAL)
    change(content)
    path.write_text(json.dumps(content | {against.SEAL: against.json_digest(content)}))
    return str(path)


def test_a_check_is_repeated_with_nothing_but_its_file(saved, tmp_path, capsys):
    path = tmp_path / "laid out anew.json"
    path.write_text(json.dumps(json.loads(saved.read_text()), sort_keys=True))
    assert main(["check", "--against", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.endswith(f"VERIFIED: {path}\n")
    assert "note:" not in out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"passed": true', '"passed": false', "it was edited after it was written"),
        ('"seal"', '"seals"', "no sealed report"),
        ('"version": 1', '"version": 2', "version 2, this version reads 1"),
        ('"subject"', '"subject": "another", "subject"', "subject is given twice"),
        ("{", "", "not valid JSON"),
    ],
)
def test_an_edited_file_is_bad_input(saved, tmp_path, capsys, old, new, said):
    path = tmp_path / "edited.json"
    path.write_text(saved.read_text().replace(old, new, 1))
    assert main(["check", "--against", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_does_not_hold_is_said(saved, tmp_path):
    def change(content):
        content["passed"] = False
        content["arguments"]["fault"] = "tanh_gelu"
        content["levels"][1]["tensors"] += 1
        content["digests"]["batch"] = "0"
        content["digests"]["parameters"]["float64"]["jax"] = "0"
        content["tolerances"]["float64"] /= 2
        content["environment"]["jax"] = "0.1"

    then = against.read_sealed(Path(forged(tmp_path / "forged.json", saved, change)))
    today = check_config(SMALL, subject="tiny", **ASKED)
    said = list(against.find_failures(then, today))
    for words in (
        "a mistake on purpose, tanh_gelu",
        "it was not passed",
        "float64: other parameters than then",
        "another batch than then",
        "tolerance float64 is looser: 5e-13 then, 1e-12 today",
        "tensors are compared today",
    ):
        assert any(words in each for each in said), words
    assert any(each.startswith("jax 0.1 then, ") for each in against.find_changes(then, today))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda saved: saved["arguments"].update(batch_size=-1), "batch_size = -1: input should be"),
        (lambda saved: saved["arguments"].update(images=[[0]]), "Arguments has no field 'images'"),
        (lambda saved: saved.update(checkpoint={}), "Arguments.checkpoint = {}"),
        (lambda saved: saved.update(arguments=3), "damaged or truncated saved check"),
        (lambda saved: saved.update(levels=[1]), "damaged or truncated saved check"),
    ],
)
def test_a_file_that_a_stranger_sealed_is_bad_input(saved, tmp_path, capsys, change, said):
    assert main(["check", "--against", forged(tmp_path / "forged.json", saved, change)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_nothing_could_change_is_not_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = vit_torch.ViT(SMALL)
    for each in model.parameters():
        each.data.zero_()
    save("zero.safetensors", model)
    argv = ["check", str(tmp_path / "zero.safetensors"), "--dtype", "float64", "--json", "c.json"]
    assert main([*argv, "--svg", "c.svg"]) == 1
    assert str(tmp_path) not in Path("c.svg").read_text()
    assert main(["check", "--against", "c.json"]) == 1
    assert "today the check is not passed (it is zero throughout" in capsys.readouterr().out


def test_a_twin_that_has_become_another_is_not_verified(saved, capsys):
    with inject("tanh_gelu", SMALL):
        assert main(["check", "--against", str(saved)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


def test_a_checkpoint_is_known_by_its_digest(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    save("there/w.safetensors", vit_torch.ViT(SMALL))
    assert main(["check", "there/w.safetensors", "--dtype", "float64", "--json", "c.json"]) == 0
    Path("there/w.safetensors").rename("w.safetensors")  # beside the file
    assert main(["check", "--against", "c.json"]) == 0
    capsys.readouterr()
    save("w.safetensors", vit_torch.ViT(SMALL), force=True)  # drawn anew
    assert main(["check", "--against", "c.json"]) == 2
    assert "w.safetensors: its SHA-256 is " in capsys.readouterr().err
    Path("w.safetensors").unlink()
    assert main(["check", "--against", "c.json"]) == 2
    assert "the checkpoint of c.json is not there" in capsys.readouterr().err


def test_nothing_goes_beside_it(tmp_path, capsys):
    for argv, said in (
        (["digits", "--against", "x.json"], "digits: --against repeats the check of its file"),
        (["--set", "depth=2", "--against", "x.json"], "--set: --against"),
        (["--seed", "1", "--against", "x.json"], "--seed: --against"),
        (
            ["--against", str(tmp_path / "x.json")],
            "no such file; give one that parity check --json wrote",
        ),
    ):
        assert main(["check", *argv]) == 2
        assert said in capsys.readouterr().err
