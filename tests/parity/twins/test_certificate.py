"""Certificates: what they say, what breaks their seal, and what running them again finds out."""

import errno
import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

import vit_torch
from parity import save
from parity.cli import main
from parity.faults import inject
from parity.twins.certificate import file
from parity.twins.certificate.file import SEAL, read_certificate, write_certificate
from parity.twins.certificate.format import Asked
from parity.twins.certificate.function import of_function
from parity.twins.certificate.training import of_training
from parity.twins.certificate.verify import reasons, verify
from parity.twins.check import check_config
from parity.twins.steps.check_steps import check_steps
from parity.twins.steps.plan import RANDOM
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import ConfigError, DataError, Recipe, WeightsError
from vit_config.errors import MissingFileError
from vit_config.files.atomic import atomic_file
from vit_config.files.json_digest import json_digest
from vit_config.job import Job

SMALL = TINY.replace(depth=1)
RECIPE = Recipe(epochs=2, batch_size=4, learning_rate=3e-3, weight_decay=0.05, ema=0.9)
ASKED = Asked(dtypes=["float64"], precision="highest", batch_size=2, seed=0, fault=None)
PAGE = Path(__file__).parents[3] / "docs" / "certificate.md"


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    """The file of a certificate of one function."""
    report = check_config(SMALL, subject="tiny", dtypes=("float64",))
    path = tmp_path_factory.mktemp("function") / "f.json"
    write_certificate(of_function(report, ASKED), path, force=False)
    return path


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """The file of a certificate of training; the schema has something to drop."""
    folder = tmp_path_factory.mktemp("training")
    job = Job(SMALL.replace(dropout_head=0.5), RECIPE, RANDOM)
    report = check_steps("tiny", job, 2, data_dir=folder, dtypes=("float64",))
    asked = ASKED.replace(steps=2, data=RANDOM, batch_size=4, config="job.json")
    path = folder / "t.json"
    write_certificate(of_training(report, asked, None), path, force=False)
    return path


def _changed(source, path, change):
    """A certificate that somebody changed, and sealed again."""
    content = json.loads(source.read_text())
    content.pop(SEAL)
    change(content)
    path.write_text(json.dumps(content | {SEAL: json_digest(content, compact=True)}))
    return path


def test_a_function_is_certified_and_verified(function, tmp_path):
    certificate = read_certificate(function)
    assert certificate.verdict == "EQUAL"
    assert certificate.passed
    assert certificate.config == json.loads(SMALL.to_json())
    assert certificate.parameters["float64"].initial.same
    assert certificate.parameters["float64"].final is None
    assert certificate.precision.jax["jax_default_matmul_precision"] == "highest"
    assert certificate.precision.torch["torch.get_float32_matmul_precision()"] == "highest"
    names = [level.level for level in certificate.levels]
    assert names == ["parameters", "modules", "output", "loss", "gradients"]
    assert [path.name for path in function.parent.iterdir()] == ["f.json"]
    found = verify(function, data_dir=tmp_path)
    assert found.passed
    assert found.notes == ()


def test_training_is_certified_and_verified(training, tmp_path):
    certificate = read_certificate(training)
    assert certificate.verdict == "EQUAL"
    assert certificate.dropped == ["dropout_head"]
    assert certificate.config["dropout_head"] == 0.0
    digests = certificate.parameters["float64"]
    assert digests.initial.same
    assert digests.final is not None
    assert digests.initial.jax not in (digests.final.jax, digests.final.torch)
    curves = certificate.yardstick.runs["float64"].curves
    assert list(curves) == ["parameters", "exp_avg", "exp_avg_sq", "ema"]
    assert len(curves["ema"].twins) == len(curves["ema"].limits) == 2
    found = verify(training, data_dir=tmp_path)
    assert found.passed
    assert found.notes == ()  # nothing is drawn or read otherwise, and training ends with the same bits


OPAQUE = {"config", "recipe", "seeds", "versions", "devices", "sources", "yardstick.tolerances"}
OPAQUE |= {"precision.jax", "precision.torch", "arguments.wrong"}


def _paths(value, path=""):
    """Every field by its path; keys that are not fields as what they stand for."""
    if isinstance(value, dict) and value and path not in OPAQUE:
        for key, item in value.items():
            key = "DTYPE" if path in ("parameters", "yardstick.runs") else key
            key = "PART" if path.endswith(".curves") else key
            yield from _paths(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from _paths(value[0], f"{path}[]")
    else:
        yield path


def test_every_field_is_documented_and_every_documented_field_is_there(function, training, tmp_path):
    path, out = tmp_path / "w.safetensors", tmp_path / "w.json"
    save(path, vit_torch.ViT(SMALL))
    assert main(["check", str(path), "--dtype", "float64", "--certificate", str(out)]) == 0
    made = (function, training, out)
    found = {each for file in made for each in _paths(json.loads(file.read_text()))}
    found = {each for each in found if not any(other.startswith(f"{each}.") for other in found)}
    documented = set(re.findall(r"^\| `([\w.\[\]]+)` \|", PAGE.read_text(), flags=re.MULTILINE))
    assert found == documented


def test_a_certificate_may_be_laid_out_anew(function, tmp_path):
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(json.loads(function.read_text()), sort_keys=True))
    assert read_certificate(path) == read_certificate(function)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"verdict": "EQUAL"', '"verdict": "DIFFERENT"', "it was edited"),
        ('"tensors": 1,', '"tensors": 2,', "it was edited"),
        ('"made"', '"more": 1, "made"', "it was edited"),
        ('"seal"', '"seals"', "its seal is none"),
        ('"kind"', '"kind": "function", "kind"', "given twice"),
        ('"token_offset": 0.0', '"token_offset": NaN', "it was edited"),
        ('"version": 1', '"version": 2', "certificate version 2, this version reads 1"),
        ('"format": "vit-parity', '"format": "another', "not a certificate"),
        ("{", "", "not valid JSON"),
    ],
)
def test_an_edited_file_is_bad_input(function, tmp_path, capsys, old, new, said):
    path = tmp_path / "edited.json"
    text = function.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert main(["verify-certificate", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content["config"].update(depth=2), "config_sha256"),
        (lambda content: content.pop("levels"), "not a whole certificate: Certificate.levels"),
        (lambda content: content.update(kind="other"), "Certificate.kind"),
        (lambda content: content["levels"][0].update(tensors="many"), "Level.tensors"),
    ],
)
def test_what_is_sealed_but_no_certificate_is_bad_input(function, tmp_path, change, said):
    path = _changed(function, tmp_path / "c.json", change)
    with pytest.raises(WeightsError) as error:
        read_certificate(path)
    one_line(error.value, str(path), said)


def _with(certificate, **changes):
    """A certificate with other values at dotted paths; ``__`` is the dot."""
    content = certificate.model_dump(mode="json")
    for path, value in changes.items():
        *way, last = path.split("__")
        at = content
        for key in way:
            at = at[int(key) if isinstance(at, list) else key]
        at[int(last) if isinstance(at, list) else last] = value
    return type(certificate)(**content)


BEYOND = {"levels__1__failures": 1, "levels__1__passed": False, "levels__1__worst__jax_error": 0.5}


@pytest.mark.parametrize(
    ("today", "said"),
    [
        ({"verdict": "DIFFERENT", "reasons": ["why"]}, "says EQUAL, today it is DIFFERENT (why)"),
        ({"parameters__float64__initial__torch": "f00"}, "float64: other initial parameters"),
        (BEYOND, "float64 gradients: "),
        ({"levels__1__tensors": 1}, "float64 gradients: only 1 of "),
        ({"levels": []}, "float64 loss: is not compared today"),
        ({"yardstick__tolerances__float64": 1e-9}, "tolerance float64 is looser: 1e-12"),
        ({"yardstick__runs__float64__curves__ema__failures": [2]}, "ema parted at step 2"),
    ],
)
def test_what_is_not_verified(training, today, said):
    then = read_certificate(training)
    assert list(reasons(then, then)) == []
    assert next(reasons(then, _with(then, **today))).startswith(("the certificate", "float64", "toler"))
    assert any(said in reason for reason in reasons(then, _with(then, **today)))


def test_only_what_is_certified_can_be_verified(training):
    then = _with(read_certificate(training), verdict="DIFFERENT", passed=False)
    assert next(reasons(then, then)) == "the certificate itself says DIFFERENT"


def test_other_parameters_are_not_verified(function, tmp_path, capsys):
    path = _changed(function, tmp_path / "c.json", lambda content: content["arguments"].update(seed=1))
    assert main(["verify-certificate", str(path)]) == 1
    out = capsys.readouterr().out
    assert "NOT VERIFIED: float64: other initial parameters" in out
    assert "note: other batches than then" in out


def test_a_twin_that_has_become_another_is_not_verified(function, tmp_path):
    with inject("tanh_gelu", SMALL):
        found = verify(function, data_dir=tmp_path)
    assert "says EQUAL, today it is DIFFERENT (float64: blocks.0.mlp.act" in found.reasons[0]
    assert verify(function, data_dir=tmp_path).passed


def test_what_has_changed_is_named(function, tmp_path):
    def older(content):
        content["subject"] = "mnist_exercise"  # a preset, of which this is not the schema
        content["versions"]["numpy"] = "1.0"
        content["devices"]["jax"] = "abacus"
        content["sources"]["vit_jax"] = "f00"
        content["precision"]["jax"]["platform"] = "gpu"

    found = verify(_changed(function, tmp_path / "c.json", older), data_dir=tmp_path)
    assert found.passed
    said = " ".join(found.notes)
    assert "preset mnist_exercise has changed since: hidden_size = 30 in the certificate" in said
    assert "version: numpy 1.0 then" in said
    assert "device: jax abacus then, cpu today" in said
    assert "the code of vit_jax has changed since" in said
    assert "Flax precision: platform gpu then, cpu today" in said


def test_a_preset_whose_recipe_has_changed(training, tmp_path, monkeypatch):
    def older(content):
        content["subject"] = "mnist_exercise"
        content["arguments"]["config"] = None

    path = _changed(training, tmp_path / "c.json", older)
    monkeypatch.setattr("parity.twins.certificate.verify.run_again", lambda then, path, **options: then)
    said = " ".join(verify(path, data_dir=tmp_path).notes)
    assert "learning_rate = 0.003 in the certificate, 0.001 today" in said
    assert "seed = " not in said


@pytest.mark.slow
def test_the_command_certifies_and_verifies(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check = ["check", "mnist_exercise", "--dtype", "float64", "--batch-size", "1"]
    assert main([*check, "--certificate", "c.json"]) == 0
    said = capsys.readouterr().out
    assert "certificate: c.json (EQUAL)" in said
    assert main(["verify-certificate", "c.json"]) == 0
    assert "VERIFIED: c.json: EQUAL" in capsys.readouterr().out
    command = read_certificate(Path("c.json")).command
    again = [*command[1:], "--certificate", "again.json"]
    assert main(again) == 0
    sealed, once_more = (read_certificate(Path(name)) for name in ("c.json", "again.json"))
    assert once_more.replace(made=sealed.made) == sealed  # the command line is all that is needed
    assert main([*check, "--fault", "tanh_gelu", "--certificate", "c.json", "--force"]) == 1
    found = json.loads(Path("c.json").read_text())
    assert (found["verdict"], found["passed"]) == ("DIFFERENT", False)
    assert found["reasons"][0].startswith("float64: blocks.0.mlp.act")
    capsys.readouterr()
    assert main(["verify-certificate", "c.json"]) == 1
    assert "NOT VERIFIED: the certificate itself says DIFFERENT" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_a_data_set_is_certified_by_its_fingerprint(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check = ["check-steps", "digits", "--steps", "1", "--dtype", "float64", "--data-dir", "sets"]
    assert main([*check, "--certificate", "d.json"]) == 0
    data = read_certificate(Path("d.json")).data
    assert data.name == "digits"
    assert re.fullmatch("[0-9a-f]{64}", data.fingerprint or "")
    capsys.readouterr()
    assert main(["verify-certificate", "d.json", "--data-dir", "elsewhere"]) == 0
    said = capsys.readouterr().out
    assert "VERIFIED: d.json: EQUAL" in said
    assert "note: " not in said  # the very batches, to the last bit


@pytest.mark.slow
def test_the_command_certifies_training(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check = ["check-steps", "mnist_exercise", "--steps", "1", "--dtype", "float64", "--seed", "3"]
    assert main([*check, "--certificate", "t.json"]) == 0
    said = capsys.readouterr().out
    assert "certificate: t.json (EQUAL)" in said
    found = read_certificate(Path("t.json"))
    assert found.seeds["run"] == found.arguments.seed == 3
    assert found.recipe is not None
    assert found.recipe["batch_size"] == found.arguments.batch_size == 2
    assert main(["verify-certificate", "t.json"]) == 0
    assert "VERIFIED: t.json: EQUAL" in capsys.readouterr().out


def test_a_wrong_step_is_not_certified(tmp_path):
    job = Job(SMALL, RECIPE.replace(clip_norm=0.5), RANDOM)
    report = check_steps(
        "tiny", job, 1, data_dir=tmp_path, dtypes=("float64",), fault="missing_correction"
    )
    asked = ASKED.replace(steps=1, data=RANDOM, batch_size=4, fault="missing_correction")
    certificate = of_training(report, asked, None)
    assert certificate.verdict == "DIFFERENT"
    assert certificate.reasons[0].startswith("float64: step 1, ")
    assert certificate.command[-2:] == ["--fault", "missing_correction"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--dtype", "float32", "--precision", "high"], "jax_default_matmul_precision = high"),
        (["--dtype", "float64", "--fault", "fast_variance"], "made on purpose"),
        (["--dtype", "float64", "--wrong", "dropout_head=0.5"], "PyTorch: dropout_head = 0.5"),
    ],
)
def test_what_agrees_and_says_nothing_is_not_certified(tmp_path, capsys, flags, why):
    path = tmp_path / "c.json"
    check = ["check", "mnist_exercise", "--batch-size", "1", *flags, "--certificate", str(path)]
    assert main(check) == 1
    assert "UNCERTIFIED" in capsys.readouterr().out
    found = read_certificate(path)
    assert found.verdict == "UNCERTIFIED"
    assert not found.passed
    assert any(why in reason for reason in found.reasons)
    assert found.precision.jax["jax_default_matmul_precision"] == found.precision.requested


def test_a_checkpoint_is_certified_by_its_digest(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    save("there/w.safetensors", vit_torch.ViT(SMALL))
    assert main(["check", "there/w.safetensors", "--dtype", "float64", "--certificate", "c.json"]) == 0
    assert main(["verify-certificate", "c.json"]) == 0
    Path("there/w.safetensors").rename("w.safetensors")  # beside the certificate
    assert main(["verify-certificate", "c.json"]) == 0
    capsys.readouterr()
    save("w.safetensors", vit_torch.ViT(SMALL))  # drawn anew
    assert main(["verify-certificate", "c.json"]) == 2
    assert "w.safetensors: its SHA-256 is " in capsys.readouterr().err
    Path("w.safetensors").unlink()
    assert main(["verify-certificate", "c.json"]) == 2
    assert "the checkpoint of c.json is not there" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "kind"), [("tfds:nonesuch", MissingFileError), ("digits", DataError)])
def test_a_data_set_that_is_missing_or_another_is_bad_input(training, tmp_path, name, kind):
    def on_data(content):
        content["data"].update(name=name, fingerprint="f00")

    path = _changed(training, tmp_path / "c.json", on_data)
    with pytest.raises(kind) as error:
        verify(path, data_dir=tmp_path)
    one_line(error.value, name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mnist_exercise", "--certificate", "nowhere/c.json"], "nowhere: no such folder"),
        (["mnist_exercise", "--certificate", "c.txt"], "c.txt: a certificate ends in .json"),
        (["mnist_exercise", "--certificate", "taken.json"], "taken.json: already exists"),
        (["mnist_exercise", "--certificate", "folder.json"], "folder.json: is a folder"),
        (
            ["mnist_exercise", "--certificate", "c.json", "--json", "c.json"],
            "c.json: is given as two outputs",
        ),
        (["mnist_exercise", "--force"], "--force: goes with --certificate only"),
        (
            ["mnist_exercise", "digits", "--certificate", "c.json"],
            "--certificate: goes with one subject",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("parity.twins.check.check_preset", None)  # nothing is computed
    monkeypatch.setattr("parity.twins.steps.check_steps.check_steps", None)
    Path("taken.json").touch()
    Path("folder.json").mkdir()
    assert main(["check", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"taken.json", "folder.json"}


def test_nothing_is_left_of_what_could_not_be_written(function, tmp_path, monkeypatch):
    @contextmanager
    def full(path, *, force):
        with atomic_file(path, force=force):
            yield _Full()

    monkeypatch.setattr(file, "atomic_file", full)
    with pytest.raises(OSError, match="No space"):
        write_certificate(read_certificate(function), tmp_path / "c.json", force=False)
    assert list(tmp_path.iterdir()) == []


class _Full:
    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("arguments", [[], ["a.json", "b.json"]])
def test_one_certificate_is_verified(arguments, capsys):
    assert main(["verify-certificate", *arguments]) == 2
    assert f"expected one certificate, got {len(arguments)}" in capsys.readouterr().err


def test_a_certificate_that_is_not_there(tmp_path):
    with pytest.raises(MissingFileError) as error:
        verify(tmp_path / "none.json", data_dir=tmp_path)
    one_line(error.value, "none.json", "no such file")


def test_a_schema_of_another_version_is_bad_input(function, tmp_path):
    def foreign(content):
        content["config"]["invented"] = 1
        content["config_sha256"] = json_digest(content["config"], compact=True)

    with pytest.raises(ConfigError) as error:
        verify(_changed(function, tmp_path / "c.json", foreign), data_dir=tmp_path)
    one_line(error.value, "c.json", "invented")
