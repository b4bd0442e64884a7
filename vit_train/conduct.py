"""What a training run is, whichever framework computes its steps: data, folder, log, and the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console

from vit_config import CheckpointError, ConfigError, Preprocess, TrainingError
from vit_config.job import Job
from vit_config.scoring import Score
from vit_train.data import eval_batches, open_dataset, steps_per_epoch, train_batches
from vit_train.distilling import check_taught
from vit_train.fit import check_fit, hold_out, make_preprocess
from vit_train.log import RunLog
from vit_train.manifest import Manifest, claim, locked, make_manifest
from vit_train.progress import TrainingBar
from vit_train.records import Records
from vit_train.sources import ImageDataset

Framework = Literal["jax", "torch"]
NAMES = {"jax": "JAX", "torch": "PyTorch"}
CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in that of a run."""


@dataclass(frozen=True)
class Trained:
    """What a run ended with."""

    params: dict[str, np.ndarray]
    """Parameters by common name, or their average where the recipe keeps one, in the layout of the
    framework that trained them."""
    preprocess: Preprocess
    dataset: ImageDataset
    step: int
    """Updates done."""
    test: Score | None
    """On the whole test set; None for a run that has not reached the recipe's end."""


@dataclass(frozen=True)
class Task:
    """A job and its data, seen to fit together."""

    job: Job
    dataset: ImageDataset
    """What is trained on and tested on."""
    validation: Records | None
    preprocess: Preprocess
    steps_per_epoch: int
    stop_after: int | None
    """How many updates in all are enough, if fewer than the recipe's."""

    @property
    def total_steps(self) -> int:
        """Updates of the whole recipe."""
        return self.job.recipe.epochs * self.steps_per_epoch

    def batches(self, start_step: int) -> Generator[Any, None, None]:
        """The training batches from a step on."""
        size = self.job.model.image_size
        return train_batches(
            self.dataset, self.job.recipe, self.preprocess, image_size=size, start_step=start_step
        )

    def eval_batches(self, records: Records) -> Generator[Any, None, None]:
        """A split in padded batches."""
        size, batch_size = self.job.model.image_size, self.job.recipe.batch_size
        return eval_batches(records, self.preprocess, image_size=size, batch_size=batch_size)

    def note_resizing(self, console: Console) -> None:
        """Say so where the images do not have the model's size."""
        found, wanted = self.dataset.image_shape[:2], self.job.model.image_size
        if found != wanted:
            sides = ["x".join(str(side or "any") for side in size) for size in (found, wanted)]
            console.print(f"images of {sides[0]} are resized to {sides[1]}", highlight=False)


def make_task(job: Job, data_dir: Path, stop_after: int | None = None) -> Task:
    """Open a job's data and see that all fits together.

    Raises:
        ConfigError, DataError, MissingFileError: it does not.
    """
    if stop_after is not None and stop_after < 0:
        raise ConfigError(f"stop_after = {stop_after}: a run cannot end before it begins; use 0 or more")
    check_taught(job.recipe)
    whole = open_dataset(job.data, data_dir)
    check_fit(job.model, whole)
    dataset, validation = hold_out(whole, job.recipe.validation_fraction)
    per_epoch = steps_per_epoch(len(dataset.train), job.recipe.batch_size)
    return Task(job, dataset, validation, make_preprocess(dataset, job.recipe), per_epoch, stop_after)


class Trainer(NamedTuple):
    """What is one framework's own in a run; `vit_jax.train` and `vit_torch.train` have it alike."""

    framework: Framework
    program: Any
    """As `vit_jax.train.sharding.Program`."""
    loop: Any
    """The room with `Hooks`, `run_steps` and `evaluate`."""
    open_checkpoints: Callable[[Path, Manifest], Any]
    """Given their folder; as `vit_jax.train.checkpoint.Checkpoints`, in a `with` statement."""
    environment: Mapping[str, str] | None
    """Versions of the packages that compute; None for those that the manifest names."""
    how: Mapping[str, Any]
    """What the log says of devices."""

    def score(self, task: Task, records: Records, params: Any) -> Score:
        """Evaluate parameters that lie on the devices."""
        return self.loop.evaluate(self.program, params, task.eval_batches(records))


def conduct(task: Task, trainer: Trainer, run_dir: Path, console: Console) -> Trained:
    """Train in `run_dir`, or continue there; see `vit_jax.train.run.train`."""
    job, program = task.job, trainer.program
    with ExitStack() as stack:
        task.note_resizing(console)
        stack.enter_context(locked(run_dir))
        check_framework(run_dir, trainer.framework)
        manifest = make_manifest(job, task.dataset.fingerprint)
        if trainer.environment is not None:
            manifest = Manifest(manifest, environment=dict(trainer.environment))
        for change in claim(run_dir, manifest):
            console.print(f"{change}: no longer bit for bit", markup=False)
        checkpoints = stack.enter_context(trainer.open_checkpoints(run_dir / CHECKPOINTS, manifest))
        start, state = _start(task, program, checkpoints, console)
        log = stack.enter_context(RunLog(run_dir, start_step=start))
        how = {"framework": trainer.framework, **trainer.how, **manifest.environment}
        log.write("start", start, run_id=manifest.run_id, **how)
        batches = stack.enter_context(closing(task.batches(start)))
        bar = TrainingBar(
            console, start_step=start, total_steps=task.total_steps, steps_per_epoch=task.steps_per_epoch
        )
        try:
            with stop_signals() as should_stop, bar:
                step, state = trainer.loop.run_steps(
                    program,
                    job.recipe,
                    state,
                    batches,
                    _hooks(task, trainer, log, bar, checkpoints, should_stop),
                    start_step=start,
                    steps_per_epoch=task.steps_per_epoch,
                    stop_after=task.stop_after,
                )
        except TrainingError as error:
            raise TrainingError(f"{error}; the checkpoints before it are in {run_dir}") from None
        test = None
        if step == task.total_steps:
            test = trainer.score(task, task.dataset.test, state.averaged)
            log.write("test", step, loss=test.loss, accuracy=test.accuracy, count=test.count)
        params = program.fetch(state.averaged)
    return Trained(params, task.preprocess, task.dataset, step, test)


def check_framework(run_dir: Path, here: Framework) -> None:
    """Refuse a folder whose checkpoints are the other framework's.

    Raises:
        CheckpointError: names both, and how to carry the run over.
    """
    entries = list((run_dir / CHECKPOINTS).glob("*"))
    there: dict[Framework, bool] = {
        "jax": any(path.is_dir() and path.name.isdecimal() for path in entries),
        "torch": any(path.suffix == ".pt" and path.stem.isdecimal() for path in entries),
    }
    for framework, found in there.items():
        if found and framework != here:
            raise CheckpointError(
                f"{run_dir}: holds a run of {NAMES[framework]}, which {NAMES[here]} cannot continue as"
                " it is; carry it over with `parity convert-run`, or choose another --run-dir"
            )


def _hooks(
    task: Task,
    trainer: Trainer,
    log: RunLog,
    bar: TrainingBar,
    checkpoints: Any,
    should_stop: Callable[[], bool],
) -> Any:
    recipe = task.job.recipe
    watched = {"validation": task.validation, "test": task.dataset.test if recipe.watch_test else None}

    def on_log(step: int, means: dict[str, float]) -> None:
        log.write("train", step, epoch=step / task.steps_per_epoch, **means)
        bar.update(step, means)

    def on_evaluate(step: int, params: Any) -> None:
        for name, records in watched.items():
            if records is None or (name == "test" and step == task.total_steps):
                continue  # the test set is read at the end anyway
            result = trainer.score(task, records, params)
            log.write(name, step, loss=result.loss, accuracy=result.accuracy)
            bar.note(
                f"epoch {step // task.steps_per_epoch}  {name} loss {result.loss:.4f}  accuracy"
                f" {result.accuracy:.4f}  ({result.correct}/{result.count})"
            )

    return trainer.loop.Hooks(on_log, checkpoints.save, on_evaluate, should_stop)


def _start(task: Task, program: Any, checkpoints: Any, console: Console) -> tuple[int, Any]:
    """The newest good checkpoint, or the initial state, saved where that is all that is asked for."""
    warn = partial(console.print, markup=False)  # a path may have brackets in it
    step, state = checkpoints.restore_latest(program.abstract_state, warn=warn)
    if step is not None:
        console.print(f"continuing from step {step}")
        return step, program.place_state(state)
    state = program.initialise()
    if task.stop_after == 0:
        checkpoints.save(0, program.fetch(state))
    return 0, state


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
