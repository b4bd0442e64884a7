"""Rows of a manifest, a few at a time: what is done again, asked for, verified, refused."""

import io
import json
import shutil

import numpy as np
import pytest
import torch
from rich.console import Console

from parity.cli import main
from parity.porting.fleet import FleetManifest, run_manifest, scan
from parity.porting.fleet.manifest import FleetJob
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of
from tests.support.convert_cases import run as command
from tests.support.fleet_folder import (
    ANSWER,
    CFG,
    forget,
    lines,
    own_file,
    run,
)
from vit_config import ConfigError, MissingFileError, read_weights
from vit_config.files.safetensors_header import read_file_header


def test_a_sound_checkpoint_of_another_model_is_not_broken_and_is_left_out(tmp_path, capsys):
    """One without attention, one that is refused by its name, one in eight bits, one of videos."""
    state = {name: torch.from_numpy(each) for name, each in arrays_of(CFG).items()}
    others = {
        "resnet": {"layer1.0.conv1.weight": torch.ones(3, 3), "layer4.0.conv1.weight": torch.ones(3, 3)},
        "words": {"embeddings.word_embeddings.weight": torch.ones(7, 3)},
        "sam": {**state, "blocks.0.attn.rel_pos_h": torch.ones(3)},
        "narrow": {
            name: each.to(torch.int8) if each.ndim == 2 else each for name, each in state.items()
        },
        "videos": {**state, "patch_embed.proj.weight": torch.ones(30, 3, 2, 5, 5)},
    }
    for name, each in others.items():
        torch.save(each, tmp_path / f"{name}.pth")
    stages = []
    manifest = scan(tmp_path, on_stage=lambda *stage: stages.append(stage)).manifest
    assert stages == [(f"opening {name}.pth", 1, 4 - i) for i, name in enumerate(sorted(others))]
    assert {job.path: (job.status, job.skip) for job in manifest.checkpoints} == {
        f"{name}.pth": ("other", True) for name in others
    }
    status, out, _ = command(capsys, "scan", tmp_path)
    assert status == 0
    assert "5 checkpoints: 5 other" in out


def test_only_what_changed_is_done_again(tmp_path):
    (tmp_path / "in").mkdir()
    for index in range(4):
        own_file(tmp_path / f"in/{index}.safetensors", index)
    path, out = tmp_path / "jobs.json", tmp_path / "out"

    def again(**options):
        before = len(lines(out)) if out.exists() else 0
        status = run(path, out=out, **options)
        return status, [line["row"] for line in lines(out)[before:] if line["status"] == "done"]

    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    names = [f"{index}.safetensors" for index in range(4)]
    assert again() == (0, names)
    assert again() == (0, [])
    own_file(tmp_path / "in/0.safetensors", 10)
    (out / "1.safetensors").unlink()
    (out / "2.safetensors").write_bytes(b"damaged")
    assert again() == (0, names[:3])
    content = json.loads(path.read_text())
    content["checkpoints"][0] |= {"dtype": "float64", "num_classes": 0}
    content["checkpoints"][1]["skip"] = True
    path.write_text(json.dumps(content))
    assert again() == (0, names[:1])
    written = read_weights(out / "0.safetensors")
    assert written.config.num_classes == 0
    assert written.arrays["cls_token"].dtype == "float64"


def test_what_somebody_else_wrote_is_not_replaced_unless_forced(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    own_file(tmp_path / "in/a.safetensors", 0)
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    (out / "a.safetensors").write_bytes(b"mine")
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out) == 1
    assert (out / "a.safetensors").read_bytes() == b"mine"
    assert run(path, out=out, force=True) == 0
    assert read_weights(out / "a.safetensors").config == CFG
    assert run(path, to="timm", out=out) == 0
    assert sorted(each.name for each in (out / "a").iterdir()) == ["config.json", "model.safetensors"]


def test_two_rows_of_one_name_write_nothing(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        own_file(tmp_path / f"in/{name}.safetensors", 0)
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    content = json.loads(path.read_text())
    assert [row["out"] for row in content["checkpoints"]] == ["a", "b"]
    content["checkpoints"][0]["out"] = "b"
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"would be written to one name, b\.safetensors"):
        run(path, out=out)
    assert not out.exists()
    for row in content["checkpoints"]:
        del row["out"]  # as manifests were written once
    path.write_text(json.dumps(content))
    assert run(path, out=out) == 0
    assert {line["output"] for line in lines(out)} == {"a.safetensors", "b.safetensors"}


def test_damage_and_questions_fail_their_row_alone(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for name in "abc":
        own_file(tmp_path / f"in/{name}.safetensors", 0)
    header = read_file_header(tmp_path / "in/b.safetensors")
    content = bytearray((tmp_path / "in/b.safetensors").read_bytes())
    content[-1] ^= 1
    assert header.entries
    (tmp_path / "in/b.safetensors").write_bytes(content)
    shutil.copytree(tmp_path / "in", tmp_path / "more")
    path = tmp_path / "jobs.json"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0  # the header is all right
    (tmp_path / "in/c.safetensors").unlink()
    arguments = ["--manifest", str(path), "--to", "torchvision", "--out", str(tmp_path / "out")]
    capsys.readouterr()
    assert main(["convert", *arguments]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "do not match" in said
    assert "c.safetensors failed no such file" in said
    assert "1 done, 2 failed" in said
    assert main(["scan", str(tmp_path / "out")]) == 0  # what was converted is not looked at
    path = tmp_path / "again.json"
    shutil.copy(tmp_path / "out/a.pth", tmp_path / "more/d.pth")
    forget(tmp_path / "more/d.pth")
    assert main(["scan", str(tmp_path / "more"), "-o", str(path)]) == 1
    assert run(path, out=tmp_path / "other") == 1
    ends = {line["row"]: line for line in lines(tmp_path / "other") if line["status"] != "started"}
    assert ends["d.pth"]["status"] == "asked"
    assert "cannot infer num_heads" in ends["d.pth"]["error"]
    assert {row: line["status"] for row, line in ends.items()} == {
        "a.safetensors": "done",
        "b.safetensors": "failed",
        "c.safetensors": "done",
        "d.pth": "asked",
    }


@pytest.mark.slow
def test_folders_of_orbax(tmp_path):
    import orbax.checkpoint as ocp

    own_file(tmp_path / "own.safetensors", 0, act="gelu_tanh")
    convert(tmp_path / "own.safetensors", to="google", out=tmp_path / "g.npz")
    tree = {}
    for name, array in np.load(tmp_path / "g.npz").items():
        *parts, last = name.split("/")
        inner = tree
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = array
    with ocp.CheckpointManager(tmp_path / "in" / "run") as manager:
        for step in (3, 12):
            manager.save(step, args=ocp.args.StandardSave(tree))
    assert main(["scan", str(tmp_path / "in"), "-o", str(tmp_path / "jobs.json")]) == 0
    jobs = FleetManifest.load(tmp_path / "jobs.json").checkpoints
    assert [job.path for job in jobs] == ["run/12", "run/3"]
    for status in ("done", "unchanged"):
        screen = io.StringIO()
        console = Console(file=screen, width=120)
        assert (
            run_manifest(tmp_path / "jobs.json", to="google", out=tmp_path / "out", console=console) == 0
        )
        assert f"2 {status}" in screen.getvalue()
    for step in (3, 12):
        written = np.load(tmp_path / "out" / f"run--{step}.npz")
        for name, array in np.load(tmp_path / "g.npz").items():
            np.testing.assert_array_equal(written[name], array)


@pytest.mark.slow
def test_what_is_verified_is_run(tmp_path):
    (tmp_path / "in").mkdir()
    own_file(tmp_path / "in/a.safetensors", 0)
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out, to="timm") == 0
    assert run(path, out=out, to="timm", verify=True) == 0
    assert run(path, out=out, to="timm") == 0
    assert [line.get("verified") for line in lines(out) if line["status"] == "done"] == [False, True]
    assert json.loads((out / "a/verification.json").read_text())["passed"]


def test_a_part_may_be_asked_for(tmp_path):
    (tmp_path / "in").mkdir()
    states = {}
    for index, part in enumerate(("model", "model_ema")):
        own_file(tmp_path / "own.safetensors", index)
        convert(tmp_path / "own.safetensors", to="torchvision", out=tmp_path / "t.pth", force=True)
        states[part] = torch.load(tmp_path / "t.pth")
    torch.save(states, tmp_path / "in/both.pth")
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 1
    content = json.loads(path.read_text())
    (job,) = content["checkpoints"]
    assert job["status"] == "ask"
    assert job["said"].startswith("holds several models, model (torchvision), model_ema (torchvision)")
    assert job["found"]["dialect"] is None
    assert job["set"] == {}
    job |= {"part": "model_ema", "set": ANSWER}
    path.write_text(json.dumps(content))
    assert run(path, out=out) == 0
    expected = read_weights(tmp_path / "own.safetensors").arrays["head.weight"]
    np.testing.assert_array_equal(read_weights(out / "both.safetensors").arrays["head.weight"], expected)


def test_bad_input_is_refused_at_once(tmp_path):
    (tmp_path / "in").mkdir()
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    with pytest.raises(MissingFileError, match=r"jobs\.json: no such file"):
        run(path, out=out)
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out) == 0  # nothing to do
    with pytest.raises(ConfigError, match="unknown dialect"):
        run(path, out=out, to="nonsense")
    with pytest.raises(ConfigError, match="is a file"):
        run(path, out=path)
    with pytest.raises(MissingFileError, match="no such folder to make"):
        run(path, out=tmp_path / "no/where")
    for arguments in ([], ["nowhere"], [str(path)], [str(tmp_path), "-o", str(tmp_path)]):
        assert main(["scan", *arguments]) == 2


def test_a_flag_that_rows_take_is_to_be_written_there_and_no_other(tmp_path, capsys):
    alone = [["--channels", "1"], ["--prefix", "a."], ["--text"], ["--adapter", "x"], ["--lora"]]
    rows = [["--dtype", "float16"], ["--num-classes", "0"], ["--set", "num_heads=2"]]
    for flags in (*alone, *rows):
        argv = ["--manifest", "jobs.json", "--to", "timm", "--out", str(tmp_path / "out"), *flags]
        assert main(["convert", *argv]) == 2
        said = capsys.readouterr().err
        assert flags[0] in said
        assert said.endswith("by itself\n" if flags in alone else "in the manifest's rows\n")
        assert flags in alone or flags[0][2:].replace("-", "_") in FleetJob.fields()
