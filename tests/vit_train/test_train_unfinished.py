"""A run that has not ended: its weights are scored, used and exported all the same."""

import json

import numpy as np
import pytest
from PIL import Image

import parity
from parity.cli import run
from parity.runs.folder import read_manifest, read_run, write_run
from parity.runs.state_jax import JaxLayout
from parity.runs.weights import write_run_weights
from tests.support.moved_runs import CFG, JOB, RECIPE, train
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from vit_config import CheckpointError
from vit_config.job import Job
from vit_train.folder.about import FILE as ABOUT
from vit_train.folder.about import RunAbout
from vit_train.folder.log import read_log

STOP = 7


@pytest.fixture(scope="module", params=["jax", "torch"])
def stopped(request, data_dir, tmp_path_factory):
    """A folder, what training returned in PyTorch's layout, and which framework it was."""
    folder = tmp_path_factory.mktemp(request.param)
    trained = train(request.param, JOB, data_dir, folder, STOP)
    params = trained.params
    if request.param == "jax":
        params = JaxLayout(CFG).to_common(params)
    return folder, params, trained, request.param


def loaded(path):
    loaded = parity.load(path, framework="torch")
    return loaded, {name: value.numpy() for name, value in loaded.model.state_dict().items()}


def test_the_weights_are_those_that_training_stopped_with(stopped, tmp_path):
    """The average, for the recipe keeps one."""
    folder, params, trained, _ = stopped
    taken = write_run_weights(folder, tmp_path / "w.safetensors")
    assert (taken.step, taken.why, taken.notes) == (STOP, "the newest", ())
    model, arrays = loaded(tmp_path / "w.safetensors")
    assert model.preprocess == trained.preprocess
    for name, value in params.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)
    write_run_weights(folder, tmp_path / "w.safetensors", 5)
    _, arrays = loaded(tmp_path / "w.safetensors")
    assert not np.array_equal(arrays["head.weight"], params["head.weight"])


def test_the_commands_take_the_folder(stopped, data_dir, tmp_path, capsys):
    folder, params, *_ = stopped
    before = sorted(path.name for path in folder.iterdir())
    scores = tmp_path / "scores.json"
    where = ["--data-dir", str(data_dir), "--framework", "torch"]
    assert run("eval", [str(folder), *where, "--json", str(scores)]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{folder}: the checkpoint of step {STOP} (the newest)\n"
    assert json.loads(scores.read_text())["data"] == JOB.data
    picture = tmp_path / "a.png"
    Image.fromarray(np.zeros((21, 15, 3), np.uint8)).save(picture)
    assert run("predict", [str(folder), str(picture), "--step", "5", "--framework", "torch"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{folder}: the checkpoint of step 5 (as asked)\n"
    assert captured.out.startswith(f"{picture}  ")
    home = tmp_path / "home"
    assert run("convert", [str(folder), str(home), "--to", "timm"]) == 0
    assert str(folder) in capsys.readouterr().out.replace("\n", "")
    np.testing.assert_array_equal(loaded(home)[1]["head.weight"], params["head.weight"])
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_best_so_far_is_taken(data_dir, tmp_path):
    recipe = RECIPE.replace(validation_fraction=0.2, eval_every_epochs=1, learning_rate=0.5)
    job = Job(CFG, recipe, JOB.data, best="loss")
    train("torch", job, data_dir, tmp_path / "run", 9)
    seen = {e["step"]: e["loss"] for e in read_log(tmp_path / "run") if e["kind"] == "validation"}
    assert len(seen) == 2
    best = min(seen, key=lambda step: seen[step])
    taken = write_run_weights(tmp_path / "run", tmp_path / "w.safetensors")
    assert taken.step == best
    assert taken.why == f"the best so far, validation loss {seen[best]:.4f}"


def test_what_cannot_be_taken_is_one_line(stopped, tmp_path, capsys):
    folder, *_, framework = stopped
    for argv, message in (
        (["eval", str(folder), "--step", "6"], "no checkpoint of step 6; there are 5, 7"),
        (["predict", str(tmp_path), "a.png", "--step", "6"], "is no folder of a training run"),
    ):
        assert run(argv[0], argv[1:]) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert message in captured.err
    moved = tmp_path / "moved"  # takes along how images are prepared
    write_run(read_run(folder), moved, framework, read_manifest(folder), log=folder)
    assert RunAbout.load(moved) == RunAbout.load(folder)
    (moved / ABOUT).write_text("{}")
    with pytest.raises(CheckpointError, match=r"about\.json: is damaged"):
        write_run_weights(moved, tmp_path / "w.safetensors")
    (moved / ABOUT).unlink()
    with pytest.raises(CheckpointError, match="does not say how images are prepared, as runs of older"):
        write_run_weights(moved, tmp_path / "w.safetensors")
    assert not (tmp_path / "w.safetensors").exists()
