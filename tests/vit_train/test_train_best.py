"""The best state of a run is kept, tested and exported; an interrupted run chooses the same one."""

import json

import jax
import numpy as np
import pytest
from rich.console import Console

import vit_jax.train.run
import vit_torch.train.run
from parity.runs.folder import differing, read_manifest, read_run, write_run
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import CheckpointError, ConfigError, Recipe
from vit_config.job import Job
from vit_train.display.profiling import Steps, read_steps
from vit_train.folder.best import Best, best_so_far
from vit_train.folder.log import read_log

RECIPE = Recipe(
    epochs=12, batch_size=8, learning_rate=0.01, validation_fraction=0.3, eval_every_epochs=1, ema=0.5
)
CFG = TINY.replace(depth=1, num_classes=3, dropout_embed=0.1)
JOB = Job(CFG, RECIPE, "tfds:tiny_rectangles", best="accuracy", patience=2)
PER_EPOCH = 4  # 33 of 47 images in batches of 8
ROOMS = {"jax": vit_jax.train.run, "torch": vit_torch.train.run}


def train(framework, data_dir, run_dir, job=JOB, **options):
    options |= {"data_dir": data_dir, "console": Console(quiet=True)}
    if framework == "jax":
        options["devices"] = tuple(jax.local_devices()[:1])
    return ROOMS[framework].train(job, run_dir=run_dir, **options)


def steps_of(run_dir):
    paths = (run_dir / "checkpoints").iterdir()
    return sorted(int(path.stem) for path in paths if path.stem.isdecimal())


def validations(run_dir):
    return [e for e in read_log(run_dir) if e["kind"] == "validation"]


def test_the_best_is_the_first_of_the_highest():
    scores = [0.2, 0.5, 0.5, float("nan"), 0.6, 0.1, 0.6]
    best = Best("accuracy", patience=2)
    better = [best.note(step, {"accuracy": value}) for step, value in enumerate(scores)]
    assert better == [True, True, False, False, True, False, False]
    assert (best.step, best.value, best.since, best.is_enough) == (4, 0.6, 2, True)
    low = Best("loss")
    assert [low.note(step, {"loss": x}) for step, x in enumerate([2.0, 1.0, 1.5])] == [True, True, False]
    assert not low.is_enough


@pytest.mark.parametrize("framework", ROOMS)
def test_a_run_ends_when_nothing_gets_better_and_with_the_best(framework, data_dir, tmp_path):
    whole = train(framework, data_dir, tmp_path / "whole", keep=1)
    seen = validations(tmp_path / "whole")
    accuracies = [event["accuracy"] for event in seen]
    first = accuracies.index(max(accuracies))
    assert first == len(seen) - 3  # two more evaluations, then the end
    assert whole.step == seen[-1]["step"] < RECIPE.epochs * PER_EPOCH
    assert (whole.best.step, whole.best.value) == (seen[first]["step"], accuracies[first])
    assert steps_of(tmp_path / "whole") == [whole.best.step, whole.step]
    assert whole.test.count == 19

    stops = (PER_EPOCH * first + 1, whole.best.step, whole.best.step + 1, None)  # before, at and after
    for stop in stops:
        broken = train(framework, data_dir, tmp_path / "broken", keep=1, stop_after=stop)
    last = train(framework, data_dir, tmp_path / "last", Job(CFG, RECIPE, JOB.data), stop_after=stops[1])
    again = train(framework, data_dir, tmp_path / "whole", keep=1)  # is over
    for other in (broken, last, again):
        for name, value in whole.params.items():
            np.testing.assert_array_equal(other.params[name], value, err_msg=name)
    assert broken.test == again.test == whole.test
    assert broken.best.step == whole.best.step
    assert steps_of(tmp_path / "broken") == steps_of(tmp_path / "whole")
    drop = ("time",)
    for run in ("broken", "whole"):
        events = [{k: v for k, v in e.items() if k not in drop} for e in validations(tmp_path / run)]
        assert events == [{k: v for k, v in e.items() if k not in drop} for e in seen]


@pytest.mark.parametrize(("here", "there"), [("torch", "jax"), ("jax", "torch")])
def test_a_run_that_moves_takes_its_best_along(here, there, data_dir, tmp_path):
    whole = train(here, data_dir, tmp_path / "run", keep=1)
    assert whole.best.step < whole.step
    run = read_run(tmp_path / "run")
    write_run(run, tmp_path / "moved", there, read_manifest(tmp_path / "run"), log=tmp_path / "run")
    assert steps_of(tmp_path / "moved") == [whole.best.step, whole.step]
    moved = train(there, data_dir, tmp_path / "moved", keep=1)  # is over
    assert (moved.step, moved.best.step) == (whole.step, whole.best.step)
    assert moved.test == pytest.approx(whole.test, rel=1e-5)
    best = [read_run(tmp_path / name, whole.best.step).state for name in ("run", "moved")]
    assert not differing(*best)


def test_a_best_checkpoint_that_is_damaged_is_named(data_dir, tmp_path):
    whole = train("torch", data_dir, tmp_path / "run", keep=1)
    path = tmp_path / "run" / "checkpoints" / f"{whole.best.step}.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="the best checkpoint is damaged") as caught:
        train("torch", data_dir, tmp_path / "run", keep=1)
    one_line(caught.value, str(path))


def test_a_run_is_known_by_what_it_chooses_by(data_dir, tmp_path):
    train("torch", data_dir, tmp_path / "run", stop_after=1)
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["best"], said["patience"]) == ("accuracy", 2)
    with pytest.raises(CheckpointError, match="patience = 2 there, null here"):
        train("torch", data_dir, tmp_path / "run", Job(CFG, RECIPE, JOB.data, best="accuracy"))
    assert best_so_far(Job(CFG, RECIPE), []) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"best": "none"}, "patience = 2 waits for a better evaluation"),
        ({"patience": 0}, "patience = 0: give a number of evaluations"),
        ({"patience": 11}, "patience = 11 cannot end a run of 12 epochs, which is evaluated 12 times"),
        ({"recipe": RECIPE.replace(validation_fraction=0.0)}, 'best = "accuracy" chooses by the valid'),
    ],
)
def test_nothing_to_choose_by_is_refused(data_dir, tmp_path, change, said):
    job = Job(**{**vars(JOB), **change})
    with pytest.raises(ConfigError, match=said):
        train("torch", data_dir, tmp_path / "run", job)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("framework", ROOMS)
def test_steps_are_traced(framework, data_dir, tmp_path):
    job = Job(CFG, RECIPE, JOB.data)
    train(framework, data_dir, tmp_path, job, stop_after=3, profile=Steps(2, 3))
    wanted = "*.xplane.pb" if framework == "jax" else "*.trace.json"
    (trace,) = (tmp_path / "profile").rglob(wanted)
    assert trace.stat().st_size > 1000
    train(framework, data_dir, tmp_path, job, stop_after=4, profile=Steps(1, 3))  # they are over
    assert [*(tmp_path / "profile").rglob(wanted)] == [trace]


@pytest.mark.parametrize("text", ["3", "3:2", "0:2", "a:b"])
def test_what_names_no_steps_is_refused(text):
    with pytest.raises(ConfigError, match=f"--profile {text}: give two numbers of steps"):
        read_steps(text)


@pytest.mark.parametrize(
    ("epochs", "between", "count"), [(1, 1, 1), (8, 1, 8), (19, 1, 19), (25, 2, 13), (300, 10, 30)]
)
def test_a_run_is_evaluated_ten_times_or_each_epoch(epochs, between, count):
    recipe = Recipe(epochs=epochs)
    assert (recipe.epochs_between_evaluations, recipe.evaluations) == (between, count)
    assert Recipe(epochs=epochs, eval_every_epochs=7).epochs_between_evaluations == 7
