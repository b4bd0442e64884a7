"""A run moves between the frameworks: half of its steps in each are all of them in one."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

import vit_train.task as task_room
from parity.runs.compare import compare_runs
from parity.runs.folder import read_manifest, read_run, write_run
from tests.support.moved_runs import CFG, JOB, RECIPE, STEPS, digests, listing, move, train
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from vit_config.job import Job, default_job
from vit_train.folder.log import read_log
from vit_train.folder.manifest import FILE
from vit_train.task import make_task

OTHER = {"jax": "torch", "torch": "jax"}
MOMENTS = ("exp_avg", "exp_avg_sq")
LIMIT = 1e-12
HALF, ALL = 7, 14
"""Seven of five steps an epoch: in the middle of the second, after warm-up."""


def make_runs(job, data_dir, folder, half, whole):
    """Whole runs in each framework from the initial state of JAX, and those that moved half way."""
    runs = {"jax": folder / "jax", "torch": folder / "torch"}
    train("jax", job, data_dir, runs["jax"], 0)
    move(runs["jax"], runs["torch"], "torch")
    for framework, other in OTHER.items():
        train(framework, job, data_dir, runs[framework], half)
        runs[f"{framework} then {other}"] = move(runs[framework], folder / f"{framework}-first", other)
    for name, run_dir in runs.items():
        train(name.rpartition(" ")[2], job, data_dir, run_dir, whole)
    return runs


@pytest.fixture(scope="module")
def runs(data_dir, tmp_path_factory):
    return make_runs(JOB, data_dir, tmp_path_factory.mktemp("runs"), HALF, ALL)


MOVED = ("jax then torch", "torch then jax")


def assert_all_alike(runs, step, limit):
    """Every moved run is both whole runs; gives the largest distance of any part."""
    largest = 0.0
    for moved in MOVED:
        for alone in OTHER:
            comparison = compare_runs(runs[alone], runs[moved])
            assert comparison.step == step
            assert comparison.beyond(limit) == [], (moved, alone, comparison.parts)
            largest = max(largest, *(part.distance for part in comparison.parts.values()))
    return largest


def test_half_in_each_is_all_in_one(runs):
    """Adam's moments, the average, and accumulated gradients, in float64; measured: 3.3e-15."""
    assert 0 < assert_all_alike(runs, ALL, LIMIT) < 1e-13
    parts = compare_runs(runs["jax"], runs["jax then torch"]).parts
    assert list(parts) == ["parameters", *MOMENTS, "ema"]


def forget_moments(state):
    blank = {m: {n: np.zeros_like(x) for n, x in each.items()} for m, each in state.moments.items()}
    return replace(state, moments=blank)


def miscount(state):
    return replace(state, step=state.step + 1)


def forget_average(state):
    return replace(state, ema=state.params)


@pytest.mark.parametrize("mistake", [forget_moments, miscount, forget_average])
def test_a_move_that_loses_something_would_show(mistake, runs, data_dir, tmp_path):
    run = read_run(runs["jax"], HALF)
    manifest = read_manifest(runs["jax"])
    write_run(replace(run, state=mistake(run.state)), tmp_path / "moved", "torch", manifest)
    train("torch", JOB, data_dir, tmp_path / "moved", ALL)
    beyond = compare_runs(runs["jax"], tmp_path / "moved").beyond(1e-6)
    assert beyond == (["ema"] if mistake is forget_average else ["parameters", *MOMENTS, "ema"])


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "momentum": 0.8, "nesterov": True, "learning_rate": 0.1},
        {"optimizer": "adam", "ema": None, "accumulate": 1, "clip_norm": 0.5, "loss": "sigmoid"},
    ],
    ids=["sgd", "adam"],
)
@pytest.mark.exhaustive
def test_with_other_recipes(changes, data_dir, tmp_path):
    """Measured: 1.0e-15 and 1.6e-15."""
    job = Job(CFG, RECIPE.replace(**changes), JOB.data)
    assert assert_all_alike(make_runs(job, data_dir, tmp_path, HALF, ALL), ALL, LIMIT) > 0


@pytest.mark.exhaustive
def test_fifty_and_fifty_steps_of_digits(tmp_path):
    """The preset with its own recipe, which has 28 steps an epoch, but in float64. Measured, the largest
    distance of any part of the state: 2.2e-15."""
    job = default_job("digits")
    job = Job(job.model, job.recipe.replace(dtype="float64"), job.data)
    largest = assert_all_alike(make_runs(job, tmp_path, tmp_path / "runs", 50, 100), 100, LIMIT)
    assert 0 < largest < 1e-13


@pytest.mark.parametrize("moved", MOVED)
def test_the_very_next_batch_follows(moved, runs, data_dir, tmp_path, monkeypatch):
    """Those that a whole run is given from the eighth on, and no other."""
    first, other = moved.split(" then ")
    asked = []

    def noted(*args, start_step, **options):
        for batch in usual(*args, start_step=start_step, **options):
            asked.append((start_step, batch["image"].tobytes(), batch["label"].tobytes()))
            yield batch

    usual = task_room.train_batches
    source = tmp_path / "source"
    monkeypatch.setattr(task_room, "train_batches", noted)
    train(first, JOB, data_dir, source, HALF)
    train(other, JOB, data_dir, move(source, tmp_path / "moved", other), ALL)
    monkeypatch.undo()
    batches = make_task(JOB, data_dir).batches(0)
    expected = [
        (0 if step < HALF else HALF, batch["image"].tobytes(), batch["label"].tobytes())
        for step, batch in enumerate(islice(batches, ALL))
    ]
    batches.close()
    assert asked == expected


@pytest.mark.parametrize("framework", OTHER)
def test_there_and_back_is_bit_for_bit(framework, runs, tmp_path):
    """What a trainer itself has written; and reading changes nothing where it was."""
    before = listing(runs[framework])
    there = move(runs[framework], tmp_path / "there", OTHER[framework])
    assert listing(runs[framework]) == before
    back = move(there, tmp_path / "back", framework)
    assert digests(back, ALL) == digests(runs[framework], ALL)
    assert read_log(back) == [e for e in read_log(runs[framework]) if e["kind"] != "test"]
    assert (back / FILE).read_bytes() == (there / FILE).read_bytes()


@pytest.mark.parametrize("framework", OTHER)
def test_a_run_that_was_moved_goes_on_bit_for_bit(framework, runs, data_dir, tmp_path):
    """The way through the other framework leaves no trace in what comes after."""
    there = move(runs[framework], tmp_path / "there", OTHER[framework])
    back = move(there, tmp_path / "back", framework)
    train(framework, JOB, data_dir, back, ALL + 1)
    alone = move(runs[framework], tmp_path / "alone", framework)
    train(framework, JOB, data_dir, alone, ALL + 1)
    assert ALL + 1 == STEPS
    assert digests(back, STEPS) == digests(alone, STEPS)


def test_the_log_is_carried_on(runs):
    events = read_log(runs["jax then torch"])
    assert [e["step"] for e in events if e["kind"] == "train"] == list(range(1, ALL + 1))
    starts = [(e["step"], e["framework"]) for e in events if e["kind"] == "start"]
    assert starts[-1] == (HALF, "torch")
    assert {each[1] for each in starts[:-1]} == {"jax"}
    whole = {e["step"]: e["loss"] for e in read_log(runs["torch"]) if e["kind"] == "train"}
    moved = {e["step"]: e["loss"] for e in events if e["kind"] == "train"}
    assert moved == pytest.approx(whole, rel=1e-12)


def test_a_moved_checkpoint_is_one_of_torchs(runs):
    """Anything that resumes torch's optimiser can take it."""
    content = torch.load(runs["jax then torch"] / "checkpoints" / f"{HALF}.pt", weights_only=True)
    assert {each["step"].item() for each in content["optimizer"]["state"].values()} == {HALF}
    assert all(value.is_contiguous() for value in content["model"].values())
