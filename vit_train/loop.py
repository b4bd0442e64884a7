"""The training loop of both frameworks: steps, with logging, evaluation and checkpoints between them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple

import numpy as np

from vit_config import Recipe, TrainingError
from vit_config.scoring import Score
from vit_train.display.profiling import Profile
from vit_train.trainer import OnDevices, Params, Stored, TrainingProgram

IN_FLIGHT = 2
"""Most steps handed to the devices at once: the one that they compute, and the next one. A run that
is told to stop finishes all of them."""


class EvaluationLeftError(Exception):
    """An evaluation was left before its end, because the run was told to stop."""


class AfterEvaluation(NamedTuple):
    """Consequences of an evaluation for the run."""

    keep: bool = False
    """Whether to save the evaluated state, due or not."""
    enough: bool = False
    """Whether the run ends here."""


class Hooks(NamedTuple, Generic[Stored, Params]):
    """Callbacks of the loop, which does no input or output itself."""

    log: Callable[[int, dict[str, float]], None]
    """Given the updates done and the means since the last call: loss, accuracy, grad_norm,
    learning_rate, images_per_second, and data_wait, the share of time in which the next batch was not
    ready. The last two leave out the first step, in which JAX compiles, unless nothing followed it."""
    save: Callable[[int, Stored], None]
    """Given the updates done and the state on the host, which the next step may change."""
    evaluate: Callable[[int, Params], AfterEvaluation]
    """Given the updates done and, on the devices, the parameters or their average, each
    `epochs_between_evaluations`. If it raises `EvaluationLeftError`, the run ends here, with a
    checkpoint."""
    should_stop: Callable[[], bool]
    """Called after every step; true ends the run early, with a checkpoint."""
    teach: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Adds the teacher's logits to a batch; its time does not count as waiting for data."""
    profile: Profile
    """Profiler that is told of every step before it is taken."""
    due: Callable[[int, bool], bool] = lambda step, logs: False
    """Given the updates done and whether they are logged, whether a checkpoint is due besides the
    recipe's."""
    keep_unlogged: Callable[[int, list[dict[str, float]]], None] = lambda step, metrics: None
    """Called before a checkpoint between two log events, with the metrics of each step since the
    last event: a run that goes on from the checkpoint logs the same means as this one would."""
    handed_out: Callable[[int], None] = lambda step: None
    """Called with the number of every update handed to the devices."""


def run_steps(
    program: TrainingProgram[OnDevices, Stored, Params],
    recipe: Recipe,
    state: OnDevices,
    batches: Iterator[Mapping[str, Any]],
    hooks: Hooks[Stored, Params],
    *,
    start_step: int,
    steps_per_epoch: int,
    stop_after: int | None = None,
    unlogged: Iterable[Mapping[str, float]] = (),
    evaluate_first: bool = False,
) -> tuple[int, OnDevices]:
    """Train to the recipe's end, or until told to stop.

    Args:
        state: state on the devices; it is used up.
        batches: the batches from `start_step` on.
        stop_after: number of updates in all after which to stop, if fewer than the recipe's.
        unlogged: the metrics that `Hooks.keep_unlogged` got at `start_step`.
        evaluate_first: whether an evaluation that is due at `start_step` may have been left.

    Returns:
        The updates done and the state on the devices.

    Raises:
        TrainingError: a loss is not finite; nothing of that step is saved.
    """
    total = recipe.epochs * steps_per_epoch
    last = total if stop_after is None else min(stop_after, total)

    def evaluates(done: int) -> bool:
        return done == total or done / steps_per_epoch % recipe.epochs_between_evaluations == 0

    if evaluate_first and evaluates(start_step) and _evaluated(hooks, start_step, state).enough:
        return start_step, state
    known: list[dict[str, float]] = [dict(values) for values in unlogged]  # of steps not logged yet
    pending: list[Any] = []  # metrics of the steps after those, on the devices still
    flying: deque[Callable[[], object]] = deque()
    since, waited, timed = time.perf_counter(), 0.0, 0
    for done in range(start_step + 1, last + 1):
        hooks.profile.before(done)
        started = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - started
        batch = program.place_batch(hooks.teach(batch))
        state, metrics = program.train_step(state, batch)
        pending.append(metrics)
        flying.append(program.fence(metrics))
        while len(flying) >= IN_FLIGHT:
            flying.popleft()()
        hooks.handed_out(done)
        timed += 1
        if hooks.profile.ends_after(done):
            program.fetch(metrics)  # waits for the devices
            hooks.profile.stop()
        stop = hooks.should_stop() or done == last < total
        epoch = done / steps_per_epoch
        save = done == total or epoch % recipe.checkpoint_every_epochs == 0
        logs = save or evaluates(done) or done % recipe.log_every_steps == 0
        save = hooks.due(done, logs) or save or stop
        if logs or save:
            known += _numbers(program.fetch(pending), done)
            pending = []
        if logs:
            means = _means(known)
            seconds = time.perf_counter() - since
            means["images_per_second"] = recipe.batch_size * timed / seconds
            means["data_wait"] = waited / seconds
            hooks.log(done, means)
            known, since, waited, timed = [], time.perf_counter(), 0.0, 0
            verdict = _evaluated(hooks, done, state) if evaluates(done) else AfterEvaluation()
            stop, save = stop or verdict.enough, save or verdict.enough or verdict.keep
        elif done == start_step + 1:  # the step is compiled, and reading of data has begun
            while flying:
                flying.popleft()()
            since, waited, timed = time.perf_counter(), 0.0, 0
        if save:
            if known:
                hooks.keep_unlogged(done, known)
            hooks.save(done, program.store(state))
        if stop:
            return done, state
    return max(start_step, last), state


def _evaluated(hooks: Hooks[Any, Any], done: int, state: Any) -> AfterEvaluation:
    """Evaluate a state; one whose evaluation was left is kept, and the run ends."""
    try:
        return hooks.evaluate(done, state.averaged)
    except EvaluationLeftError:
        return AfterEvaluation(keep=True, enough=True)


def _numbers(metrics: list[dict[str, np.ndarray]], done: int) -> list[dict[str, float]]:
    """Convert the metrics of the last steps to numbers.

    Raises:
        TrainingError: a loss among them is not finite.
    """
    numbers = [{name: float(value) for name, value in values.items()} for values in metrics]
    for step, values in enumerate(numbers, start=done - len(numbers) + 1):
        loss, norm = values["loss"], values["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainingError(
                f"step {step}: the loss is {loss} and the gradient's norm {norm}; lower"
                " learning_rate, or set clip_norm"
            )
    return numbers


def _means(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Average each metric."""
    return {name: float(np.mean([values[name] for values in metrics])) for name in metrics[0]}


def evaluate(
    program: TrainingProgram[Any, Any, Params],
    params: Params,
    batches: Iterable[Mapping[str, Any]],
    left: Callable[[], bool] = lambda: False,
) -> Score:
    """Evaluate parameters on the devices over padded batches, every example counted once.

    Args:
        left: returns whether to leave off; asked before each batch.

    Raises:
        EvaluationLeftError: it was left.
    """
    loss, right, count = 0.0, 0, 0
    for batch in batches:  # fetched one by one: a large set never piles up on the devices
        if left():
            raise EvaluationLeftError
        sums = program.fetch(program.eval_step(params, program.place_batch(batch)))
        loss += float(sums["loss"])
        right += int(sums["correct"])
        count += int(sums["count"])
    return Score(loss / count, right, count)
