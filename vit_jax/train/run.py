"""One training run, from an open data set to final parameters, in a folder that can be continued."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from vit_config import Preprocess, Recipe, TrainingError
from vit_config.job import Job
from vit_config.scoring import Score
from vit_jax.functional import Params
from vit_jax.step import TrainState
from vit_jax.train.checkpoint import Checkpoints
from vit_jax.train.data import eval_batches, open_dataset, steps_per_epoch, train_batches
from vit_jax.train.fit import check_fit, hold_out, make_preprocess
from vit_jax.train.log import RunLog
from vit_jax.train.loop import Hooks, evaluate, run_steps
from vit_jax.train.manifest import claim, locked, make_manifest
from vit_jax.train.progress import TrainingBar
from vit_jax.train.records import Records
from vit_jax.train.sharding import Device, Parallel, Program, Sharding, make_program
from vit_jax.train.sources import ImageDataset


@dataclass(frozen=True)
class Trained:
    """What a run ended with."""

    params: dict[str, np.ndarray]
    """Parameters by common name, or their average where the recipe keeps one, in JAX's layout."""
    preprocess: Preprocess
    dataset: ImageDataset
    step: int
    """Updates done."""
    test: Score | None
    """On the whole test set; None for a run that was interrupted."""


def train(
    job: Job,
    *,
    data_dir: Path,
    run_dir: Path,
    parallel: Parallel = "jit",
    sharding: Sharding = "replicated",
    devices: Sequence[Device] | None = None,
    console: Console | None = None,
) -> Trained:
    """Train a job in `run_dir`, or continue it there.

    With the same packages on the same devices the result is bit for bit that of a run without a break.

    SIGINT or SIGTERM ends the run after the step that is under way, with a checkpoint; a second one
    ends it at once, and the last checkpoint stays good.

    Args:
        data_dir: the folder of prepared data sets.
        devices: default: all local ones.
        console: where progress is shown; default: the terminal.

    Raises:
        ConfigError, DataError, MissingFileError, CheckpointError: the job, the data and the folder do
            not fit together; nothing was trained.
        TrainingError: the loss is not finite.
    """
    console = console or Console()
    with ExitStack() as stack:
        stack.enter_context(numerics(job.recipe))
        run = _prepare(job, data_dir, parallel=parallel, sharding=sharding, devices=devices)
        run.note_resizing(console)
        stack.enter_context(locked(run_dir))
        manifest = make_manifest(job, run.dataset.fingerprint)
        for change in claim(run_dir, manifest):
            console.print(f"{change}: no longer bit for bit", markup=False)
        checkpoints = stack.enter_context(Checkpoints(run_dir / "checkpoints", run_id=manifest.run_id))
        start, state = _start(run.program, checkpoints, console)
        log = stack.enter_context(RunLog(run_dir, start_step=start))
        kinds = [device.device_kind for device in devices or jax.local_devices()]
        how = {"parallel": parallel, "sharding": sharding, "devices": kinds, **manifest.environment}
        log.write("start", start, run_id=manifest.run_id, **how)
        batches = stack.enter_context(closing(run.batches(start)))
        bar = TrainingBar(
            console, start_step=start, total_steps=run.total_steps, steps_per_epoch=run.steps_per_epoch
        )
        try:
            with stop_signals() as should_stop, bar:
                hooks = _hooks(run, log, bar, checkpoints, should_stop)
                step, state = run_steps(
                    run.program,
                    job.recipe,
                    state,
                    batches,
                    hooks,
                    start_step=start,
                    steps_per_epoch=run.steps_per_epoch,
                )
        except TrainingError as error:
            raise TrainingError(f"{error}; the checkpoints before it are in {run_dir}") from None
        test = None
        if step == run.total_steps:
            test = run.score(run.dataset.test, state.averaged)
            log.write("test", step, loss=test.loss, accuracy=test.accuracy, count=test.count)
        params = run.program.fetch(state.averaged)
    return Trained(params, run.preprocess, run.dataset, step, test)


@dataclass(frozen=True)
class _Run:
    """What a run consists of, seen to fit together."""

    job: Job
    dataset: ImageDataset
    """What is trained on and tested on."""
    validation: Records | None
    preprocess: Preprocess
    program: Program
    steps_per_epoch: int

    @property
    def total_steps(self) -> int:
        return self.job.recipe.epochs * self.steps_per_epoch

    def batches(self, start_step: int) -> Generator[Any, None, None]:
        """The training batches from a step on."""
        size = self.job.model.image_size
        return train_batches(
            self.dataset, self.job.recipe, self.preprocess, image_size=size, start_step=start_step
        )

    def score(self, records: Records, params: Params) -> Score:
        """Evaluate parameters that lie on the devices."""
        size, batch_size = self.job.model.image_size, self.job.recipe.batch_size
        batches = eval_batches(records, self.preprocess, image_size=size, batch_size=batch_size)
        return evaluate(self.program, params, batches)

    def note_resizing(self, console: Console) -> None:
        """Say so where the images do not have the model's size."""
        found, wanted = self.dataset.image_shape[:2], self.job.model.image_size
        if found != wanted:
            sides = ["x".join(str(side or "any") for side in size) for size in (found, wanted)]
            console.print(f"images of {sides[0]} are resized to {sides[1]}", highlight=False)


def _prepare(job: Job, data_dir: Path, **how: Any) -> _Run:
    whole = open_dataset(job.data, data_dir)
    check_fit(job.model, whole)
    dataset, validation = hold_out(whole, job.recipe.validation_fraction)
    per_epoch = steps_per_epoch(len(dataset.train), job.recipe.batch_size)
    program = make_program(job.model, job.recipe, per_epoch, **how)
    return _Run(job, dataset, validation, make_preprocess(dataset), program, per_epoch)


def _hooks(
    run: _Run, log: RunLog, bar: TrainingBar, checkpoints: Checkpoints, should_stop: Callable[[], bool]
) -> Hooks:
    recipe = run.job.recipe
    watched = {"validation": run.validation, "test": run.dataset.test if recipe.watch_test else None}

    def on_log(step: int, means: dict[str, float]) -> None:
        log.write("train", step, epoch=step / run.steps_per_epoch, **means)
        bar.update(step, means)

    def on_evaluate(step: int, params: Params) -> None:
        for name, records in watched.items():
            if records is None or (name == "test" and step == run.total_steps):
                continue  # the test set is read at the end anyway
            result = run.score(records, params)
            log.write(name, step, loss=result.loss, accuracy=result.accuracy)
            bar.note(
                f"epoch {step // run.steps_per_epoch}  {name} loss {result.loss:.4f}  accuracy"
                f" {result.accuracy:.4f}  ({result.correct}/{result.count})"
            )

    return Hooks(on_log, checkpoints.save, on_evaluate, should_stop)


@contextmanager
def numerics(recipe: Recipe) -> Iterator[None]:
    """The recipe's floating-point types and matmul precision, for the duration."""
    precision = None if recipe.matmul_precision == "default" else recipe.matmul_precision
    with jax.enable_x64(recipe.dtype == "float64"), jax.default_matmul_precision(precision):
        yield


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Note the first SIGINT or SIGTERM instead of dying of it; the second acts as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may handle signals
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: Any) -> None:
        received.append(number)
        for each, handler in usual.items():
            signal.signal(each, handler)

    for number in usual:
        signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _start(program: Program, checkpoints: Checkpoints, console: Console) -> tuple[int, TrainState]:
    """The newest good checkpoint, or the initial state."""
    warn = partial(console.print, markup=False)  # a path may have brackets in it
    step, state = checkpoints.restore_latest(program.abstract_state, warn=warn)
    if step is None:
        return 0, program.initialise()
    console.print(f"continuing from step {step}")
    return step, program.place_state(state)
