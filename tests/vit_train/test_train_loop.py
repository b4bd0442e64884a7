"""The loop that both frameworks share, driven by a program that computes nothing."""

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from vit_config import Recipe, TrainingError
from vit_train.loop import Hooks, run_steps

RECIPE = Recipe(epochs=2, batch_size=7, log_every_steps=2, checkpoint_every_epochs=2)


def program(loss=lambda step: 1.0 / step):
    """Its state counts the updates; each has the loss that is asked for."""

    def train_step(state, batch):
        step = state.averaged + 1
        metrics = {"loss": np.float64(loss(step)), "grad_norm": np.float64(1.0)}
        return SimpleNamespace(averaged=step), metrics

    return SimpleNamespace(
        place_batch=lambda batch: batch, train_step=train_step, fetch=lambda tree: tree
    )


def _note(events, *event):
    events.append(event)


def run(batches, *, steps=None, stop=lambda: False, start=0, **options):
    told = {"log": [], "save": [], "evaluate": []}
    hooks = Hooks(*(partial(_note, events) for events in told.values()), stop)
    state = SimpleNamespace(averaged=start)
    ended, _ = run_steps(
        steps or program(), RECIPE, state, batches, hooks, start_step=start, steps_per_epoch=3, **options
    )
    return ended, told


def test_means_and_events_come_when_the_recipe_says():
    ended, told = run(iter([{}] * 6))
    assert ended == 6
    assert [step for step, _ in told["log"]] == [2, 4, 6]
    assert told["log"][0][1]["loss"] == pytest.approx((1 + 1 / 2) / 2)
    assert [step for step, _ in told["save"]] == [6]
    ended, told = run(iter([{}] * 6), start=4, stop_after=5)
    assert (ended, [step for step, _ in told["save"]]) == (5, [5])


def test_the_log_says_which_share_of_time_waited_for_data():
    def slow():
        for _ in range(6):
            time.sleep(0.02)
            yield {}

    for batches, least, most in ((slow(), 0.8, 1.0), (iter([{}] * 6), 0.0, 0.8)):
        _, told = run(batches)
        for _, means in told["log"]:
            assert least <= means["data_wait"] <= most


def test_a_loss_that_is_not_finite_names_its_step():
    with pytest.raises(TrainingError, match=r"^step 3: the loss is nan "):
        run(iter([{}] * 6), steps=program(lambda step: float("nan") if step == 3 else 1.0))
