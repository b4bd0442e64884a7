"""The training loop of both frameworks: steps, and what happens between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple

import numpy as np

from vit_config import Recipe, TrainingError
from vit_config.scoring import Score
from vit_train.profiling import Profile
from vit_train.trainer import OnDevices, Params, Program, Stored


class Verdict(NamedTuple):
    """What an evaluation means for the run."""

    keep: bool = False
    """Whether its state is to be saved, due or not."""
    enough: bool = False
    """Whether the run ends here."""


class Hooks(NamedTuple, Generic[Stored, Params]):
    """What the loop tells the world; it does no input or output itself."""

    log: Callable[[int, dict[str, float]], None]
    """Given the updates done and the means since the last call: loss, accuracy, grad_norm,
    learning_rate, images_per_second, and data_wait, the share of time in which the next batch was not
    ready. Neither counts the first step, in which JAX compiles, unless nothing followed it."""
    save: Callable[[int, Stored], None]
    """Given the updates done and the state on the host, which the next step may change."""
    evaluate: Callable[[int, Params], Verdict]
    """Given the updates done and, on the devices, the parameters or their average, every
    `eval_every_epochs`."""
    should_stop: Callable[[], bool]
    """Asked after every step; true ends the run early, with a checkpoint."""
    teach: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Completes a batch by what a teacher says of it; its time is not spent waiting for data."""
    profile: Profile
    """Told of every step before it is taken."""


def run_steps(
    program: Program[OnDevices, Stored, Params],
    recipe: Recipe,
    state: OnDevices,
    batches: Iterator[Mapping[str, Any]],
    hooks: Hooks[Stored, Params],
    *,
    start_step: int,
    steps_per_epoch: int,
    stop_after: int | None = None,
) -> tuple[int, OnDevices]:
    """Train to the recipe's end, or until told to stop.

    Args:
        state: on the devices; used up.
        batches: those from `start_step` on.
        stop_after: how many updates in all are enough, if fewer than the recipe's.

    Returns:
        The updates done and the state on the devices.

    Raises:
        TrainingError: a loss that is not finite; nothing of that step is saved.
    """
    total = recipe.epochs * steps_per_epoch
    last = total if stop_after is None else min(stop_after, total)
    pending: list[Any] = []  # metrics, on the devices still
    since, waited, timed = time.perf_counter(), 0.0, 0
    for done in range(start_step + 1, last + 1):
        hooks.profile.before(done)
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        batch = program.place_batch(hooks.teach(batch))
        state, metrics = program.train_step(state, batch)
        pending.append(metrics)
        timed += 1
        if hooks.profile.ends_after(done):
            program.fetch(metrics)  # waits for the devices
            hooks.profile.stop()
        stop = done < total and (hooks.should_stop() or done == last)
        epoch = done / steps_per_epoch
        save = done == total or stop or epoch % recipe.checkpoint_every_epochs == 0
        evaluate = done == total or epoch % recipe.eval_every_epochs == 0
        if save or evaluate or done % recipe.log_every_steps == 0:
            means = _means(program.fetch(pending), done)
            seconds = time.perf_counter() - since
            means["images_per_second"] = recipe.batch_size * timed / seconds
            means["data_wait"] = waited / seconds
            hooks.log(done, means)
            verdict = hooks.evaluate(done, state.averaged) if evaluate else Verdict()
            stop = stop or verdict.enough
            if save or stop or verdict.keep:
                hooks.save(done, program.store(state))
            pending, since, waited, timed = [], time.perf_counter(), 0.0, 0
        elif done == start_step + 1:  # compiled, and the reading of data begun
            program.fetch(metrics)  # waits for the devices
            since, waited, timed = time.perf_counter(), 0.0, 0
        if stop:
            return done, state
    return max(start_step, last), state


def _means(metrics: list[dict[str, np.ndarray]], done: int) -> dict[str, float]:
    """The mean of each metric over the last steps.

    Raises:
        TrainingError: a loss among them is not finite.
    """
    for step, values in enumerate(metrics, start=done - len(metrics) + 1):
        loss, norm = float(values["loss"]), float(values["grad_norm"])
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainingError(
                f"step {step}: the loss is {loss} and the gradient's norm {norm}; lower"
                " learning_rate, or set clip_norm"
            )
    return {name: float(np.mean([values[name] for values in metrics])) for name in metrics[0]}


def evaluate(
    program: Program[Any, Any, Params], params: Params, batches: Iterable[Mapping[str, Any]]
) -> Score:
    """Evaluate parameters on the devices over padded batches, every example counted once."""
    loss, right, count = 0.0, 0, 0
    for batch in batches:  # fetched one by one: a large set never piles up on the devices
        sums = program.fetch(program.eval_step(params, program.place_batch(batch)))
        loss += float(sums["loss"])
        right += int(sums["correct"])
        count += int(sums["count"])
    return Score(loss / count, right, count)
