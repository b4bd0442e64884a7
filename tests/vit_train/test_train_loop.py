"""The loop that both frameworks share, driven by a program that computes nothing."""

import io
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import vit_train.display.progress
import vit_train.loop
from vit_config import Recipe, TrainingError
from vit_train.display.profiling import Profile
from vit_train.display.progress import TrainingBar
from vit_train.loop import AfterEvaluation, Hooks, run_steps

RECIPE = Recipe(
    epochs=2, batch_size=7, log_every_steps=2, checkpoint_every_epochs=2, eval_every_epochs=10
)


def program(loss=lambda step: 1.0 / step):
    """Its state counts the updates; each has the loss that is asked for."""

    def train_step(state, batch):
        step = state.averaged + 1
        metrics = {"loss": np.float64(loss(step)), "grad_norm": np.float64(1.0)}
        return SimpleNamespace(averaged=step), metrics

    return SimpleNamespace(
        place_batch=lambda batch: batch,
        train_step=train_step,
        fetch=lambda tree: tree,
        fence=lambda metrics: lambda: None,
        store=lambda tree: tree,
    )


def _note(events, *event):
    events.append(event)


def run(batches, *, steps=None, stop=lambda: False, start=0, hooks=(), **options):
    calls = {"log": [], "save": []}
    log, save = partial(_note, calls["log"]), partial(_note, calls["save"])
    profile = Profile(None, nullcontext, Path())
    hooks = Hooks(log, save, lambda *_: AfterEvaluation(), stop, dict, profile, **dict(hooks))
    state = SimpleNamespace(averaged=start)
    ended, _ = run_steps(
        steps or program(), RECIPE, state, batches, hooks, start_step=start, steps_per_epoch=3, **options
    )
    return ended, calls


def test_means_and_events_come_when_the_recipe_says():
    ended, calls = run(iter([{}] * 6))
    assert ended == 6
    assert [step for step, _ in calls["log"]] == [2, 4, 6]
    assert calls["log"][0][1]["loss"] == pytest.approx((1 + 1 / 2) / 2)
    assert [step for step, _ in calls["save"]] == [6]
    ended, calls = run(iter([{}] * 6), start=4, stop_after=5)
    assert (ended, [step for step, _ in calls["save"]]) == (5, [5])


def test_the_log_says_which_share_of_time_waited_for_data(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(vit_train.loop.time, "perf_counter", lambda: now[0])

    def taking(seconds, value):
        now[0] += seconds
        return value

    quick = program()
    slow = SimpleNamespace(**vars(quick))
    slow.train_step = lambda *args: taking(1.0, quick.train_step(*args))
    for wait, share in ((3.0, 0.75), (0.0, 0.0)):
        _, calls = run((taking(wait, {}) for _ in range(6)), steps=slow)
        assert [means["data_wait"] for _, means in calls["log"]] == [share] * 3


@pytest.mark.parametrize("start", [0, 2])
def test_the_speed_is_that_of_compiled_steps(monkeypatch, start):
    now = [0.0]
    monkeypatch.setattr(vit_train.loop.time, "perf_counter", lambda: now[0])
    quick = program()

    def step(state, batch):
        now[0] += 100.0 if state.averaged == start else 2.0
        return quick.train_step(state, batch)

    slow = SimpleNamespace(**{**vars(quick), "train_step": step})
    _, calls = run(iter([{}] * 6), steps=slow, start=start)
    assert {means["images_per_second"] for _, means in calls["log"]} == {RECIPE.batch_size / 2.0}


@pytest.mark.parametrize("long", [0.0, 60.0])
def test_a_run_that_waits_for_data_is_told_once_what_to_do(long, monkeypatch):
    monkeypatch.setattr(vit_train.display.progress, "LONG", long)
    said = io.StringIO()
    with TrainingBar(
        Console(file=said, width=200), start_step=0, total_steps=6, steps_per_epoch=3
    ) as bar:
        for step, wait in enumerate((0.04, 0.06, 0.2), start=1):
            means = {"loss": 1.0, "accuracy": 0.5, "images_per_second": 7.0, "data_wait": wait}
            bar.update(step, means)
    lines = said.getvalue().splitlines()
    advised = [line.startswith("steps wait for data: ") for line in lines]
    shown = ["waits for data" in line for line in lines]
    if long:
        assert (advised, shown) == ([False] * 3, [False, True, True])
    else:
        assert (advised, shown) == ([False, True, False, False], [False, False, True, True])


@pytest.mark.parametrize("terminal", [False, True])
def test_the_time_left_is_told_after_the_first_steps_and_leaves_compiling_out(terminal, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(vit_train.display.progress.time, "perf_counter", lambda: now[0])
    said = io.StringIO()
    console = Console(file=said, width=200, force_terminal=terminal)
    with TrainingBar(console, start_step=10, total_steps=20, steps_per_epoch=5) as bar:
        now[0] = 1000.0  # compiled
        for step in range(11, 16):
            bar.advance(step)
            now[0] += 30.0
        bar.update(15, {"loss": 1.0, "accuracy": 0.5, "images_per_second": 7.0})
        bar._progress.refresh()
    assert "0:02:30" in said.getvalue()
    if not terminal:
        (line,) = said.getvalue().splitlines()
        assert line == "epoch 3/4  loss 1.0000  accuracy 0.500  7 images/s  1150 s  left 0:02:30"


def test_a_loss_that_is_not_finite_names_its_step():
    with pytest.raises(TrainingError, match=r"^step 3: the loss is nan "):
        run(iter([{}] * 6), steps=program(lambda step: float("nan") if step == 3 else 1.0))
