"""Distillation from the command line: a teacher's file, its logits in every batch, in either twin."""

import json

import numpy as np
import pytest

import parity
from parity.cli import run
from parity.cli.support import after_training
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.share import rarely
from tests.support.tiny import TINY
from tests.support.tiny_tfds import write_tiny_set
from vit_config import Preprocess, write_weights
from vit_config.parameters import parameters
from vit_train.folder.log import read_log

TEACHER = TINY.replace(depth=1, num_classes=3)
STUDENT = TEACHER.replace(distill_token=True)
PIXELS = {
    name: Preprocess(mean=(m,) * 3, std=(s,) * 3) for name, m, s in (("a", 0.5, 0.5), ("b", 0.3, 0.2))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taught")
    write_tiny_set(folder / "data")
    rng = np.random.default_rng(0)
    for name, cfg, pixels in (
        ("teacher", TEACHER, "b"),
        ("other", TEACHER, "b"),
        ("student", STUDENT, "a"),
    ):
        drawn = {n: 0.3 * rng.standard_normal(x.shape) for n, x in parameters(cfg).items()}
        write_weights(folder / f"{name}.safetensors", cfg, drawn, PIXELS[pixels])
    for name, classes in (("small", 4), ("short", 3)):
        small = TEACHER.replace(num_classes=classes, image_size=(14, 15))
        drawn = {n: np.zeros(x.shape, np.float32) for n, x in parameters(small).items()}
        write_weights(folder / f"{name}.safetensors", small, drawn, PIXELS["a"])
    return folder


def command(folder, framework, run_dir, *more, teacher="teacher", kind="soft"):
    return [
        *(
            "--init",
            str(folder / "student.safetensors"),
            "--teacher",
            str(folder / f"{teacher}.safetensors"),
        ),
        *(
            "--framework",
            framework,
            "--data",
            "tfds:tiny_rectangles",
            "--data-dir",
            str(folder / "data"),
        ),
        *(
            "--run-dir",
            str(run_dir),
            "--recipe.distill",
            kind,
            "--recipe.epochs",
            "1",
            "--dtype",
            "float64",
        ),
        *("--recipe.batch-size", "16", "--recipe.log-every-steps", "1", *more),
    ]


def losses(run_dir):
    return [event["loss"] for event in read_log(run_dir) if event["kind"] == "train"]


@pytest.mark.parametrize("kind", rarely(("hard", "soft"), ("soft",)))
def test_both_frameworks_learn_the_same_from_a_file_and_resume(folder, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(after_training, "score_and_compare", lambda *_: 0)  # is tested elsewhere
    for framework in ("jax", "torch"):
        whole, broken = tmp_path / framework, tmp_path / f"{framework}-broken"
        assert run("train", command(folder, framework, whole, kind=kind)) == 0
        if kind == "soft":
            for stop in (["--stop-after", "1"], []):
                assert run("train", command(folder, framework, broken, *stop)) == 0
            assert losses(broken) == losses(whole)
    np.testing.assert_allclose(losses(tmp_path / "jax"), losses(tmp_path / "torch"), rtol=1e-10)
    if kind == "hard":
        return
    other = tmp_path / "other"
    assert run("train", command(folder, "torch", other, teacher="other")) == 0
    assert losses(other)[0] != losses(tmp_path / "torch")[0]
    said = json.loads((other / "run.json").read_text())["teacher"]
    assert said["name"].endswith("other.safetensors")
    again = ["--config", str(other / "run.json"), "--run-dir", str(other), "--framework", "torch"]
    assert run("train", [*again, "--data-dir", str(folder / "data")]) == 0
    exported = parity.load(other / "weights.safetensors", framework="torch")
    assert exported.config.distill_token


def test_a_dry_run_asks_the_teacher(folder, tmp_path, capsys):
    assert run("train", [*command(folder, "torch", tmp_path / "run"), "--dry-run"]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "options", "said"),
    [
        ((), {"kind": "none"}, 'teaches nothing where distill = "none"'),
        (
            (),
            {"teacher": "small"},
            "(14, 15) there, (21, 15) here; num_classes = 4 there, 3 here; choose another\n",
        ),
        ((), {"teacher": "short"}, "another, or `parity convert --image-size 21x15` it"),
        ((), {"teacher": "nowhere"}, "nowhere.safetensors"),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_line(folder, tmp_path, capsys, more, options, said):
    assert run("train", command(folder, "torch", tmp_path / "run", *more, **options)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
