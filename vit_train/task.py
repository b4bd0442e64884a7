"""A job and its data: the batches that a run trains on, and their number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from rich.console import Console

from vit_config import ConfigError, Preprocess, Weights
from vit_config.adapters import draw_adapters, untrained_names
from vit_config.images.preprocess import WHITE
from vit_config.job import Job
from vit_config.parameters import parameters
from vit_train.batches.balance import resolve_class_weights
from vit_train.batches.data import eval_batches, open_dataset, steps_per_epoch, train_batches
from vit_train.batches.fit import check_labels, fit_dataset, hold_out, make_preprocess
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import TO_DO, OnDamage, Records
from vit_train.display.profiling import Steps
from vit_train.distilling import Teacher, TeacherWeights, check_taught, make_teach
from vit_train.folder.best import check_best
from vit_train.folder.saving import NO_LIMIT, SaveEvery
from vit_train.folder.start import Start, frozen_names


@dataclass(frozen=True)
class Task:
    """A job and its data, checked to fit together."""

    job: Job
    dataset: ImageDataset
    """The data set to train on and to test on."""
    validation: Records | None
    preprocess: Preprocess
    steps_per_epoch: int
    stop_after: int | None
    """Number of updates in all after which to stop, if fewer than the recipe's."""
    start: Start | None = None
    """Initial parameters, if they are not drawn."""
    keep: int = 3
    """Number of newest checkpoints that are kept: the newest, and two to fall back to."""
    profile: Steps | None = None
    """Steps to trace."""
    teacher: TeacherWeights | None = None
    """The model whose logits the run learns from."""
    workers: int = 0
    """Processes that read and augment training images; 0 for threads."""
    save_every: SaveEvery = NO_LIMIT
    """The most work that may be lost, besides the recipe's checkpoints."""
    notes: tuple[str, ...] = ()
    """Notes to the user before the first step, a sentence each."""

    def teach(self, make_teacher: Callable[[Weights], Teacher]) -> Callable[[Any], Any]:
        """Make the function that adds the teacher's logits, if any, to a training batch."""
        if self.teacher is None:
            return lambda batch: batch
        weights = self.teacher.weights
        assert weights.preprocess is not None  # see `check_taught`
        return make_teach(make_teacher(weights), ours=self.preprocess, theirs=weights.preprocess)

    @property
    def frozen(self) -> frozenset[str]:
        """Parameters that are not trained, by common name."""
        job = self.job
        return frozen_names(self.parameter_names, job.freeze) | untrained_names(job.lora, job.model)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Every parameter's common name, adapters among them."""
        adapters = draw_adapters(self.job.lora, self.job.model, 0)
        return (*parameters(self.job.model), *adapters)

    @property
    def total_steps(self) -> int:
        """Updates of the whole recipe."""
        return self.job.recipe.epochs * self.steps_per_epoch

    def batches(self, start_step: int, rows: np.ndarray | None = None) -> Generator[Any, None, None]:
        """Yield the training batches from a step on, or some rows of each."""
        how: dict[str, Any] = {"image_size": self.job.model.image_size, "rows": rows}
        return train_batches(
            self.dataset,
            self.job.recipe,
            self.preprocess,
            start_step=start_step,
            num_workers=self.workers,
            **how,
        )

    def eval_batches(
        self, records: Records, rows: np.ndarray | None = None
    ) -> Generator[Any, None, None]:
        """Yield a split in padded batches, or some rows of each."""
        how: dict[str, Any] = {"image_size": self.job.model.image_size, "rows": rows}
        return eval_batches(records, self.preprocess, batch_size=self.job.recipe.batch_size, **how)

    @property
    def damaged(self) -> list[str]:
        """The records that could not be read so far, and why, a sentence each."""
        splits = [self.dataset.train, self.validation, self.dataset.test]
        damage = [each.damaged for each in splits if each is not None]
        return [
            str(error).removesuffix(TO_DO) for errors in damage for _, error in sorted(errors.items())
        ]

    def note_resizing(self, console: Console) -> None:
        """Tell the user if the images do not have the model's size, or are not read as RGB."""
        actual, (height, width) = self.dataset.image_shape[:2], self.job.model.image_size
        if actual != (height, width):
            size = "x".join(map(str, actual)) if all(actual) else "any size"
            console.print(f"images of {size} are resized to {height}x{width}", highlight=False)
        if self.dataset.of_files and (channels := self.job.model.in_channels) != 3:
            how = {1: "grey, in one channel", 4: "RGB and transparency, in four channels"}[channels]
            console.print(f"images are read as {how}", highlight=False)


class TaskOptions(TypedDict, total=False):
    """Options of a run besides its job; none of them changes what a step computes."""

    stop_after: int | None
    """End after this many updates in all, with a checkpoint; 0 writes the initial state."""
    start: Start | None
    """Weights to begin with; by default they are drawn."""
    on_damage: OnDamage
    """What to do with an image that cannot be read."""
    keep: int
    """Number of newest checkpoints that are kept; by default 3."""
    profile: Steps | None
    """Steps to trace."""
    teacher: TeacherWeights | None
    """The model whose logits the run learns from."""
    workers: int
    """Processes that read and augment training images; by default none, but threads."""
    save_every: SaveEvery
    """The most work that may be lost; by default only the recipe's checkpoints are written."""
    notes: tuple[str, ...]
    """Notes to the user before the first step."""


def make_task(job: Job, data_dir: Path, **options: Unpack[TaskOptions]) -> Task:
    """Open a job's data and check that everything fits together.

    Weights to start from tell how images are prepared; without weights, or if they do not tell, mean
    and deviation are those of the training images.

    Raises:
        ConfigError, DataError, MissingFileError: something does not fit.
    """
    stop_after, start = options.get("stop_after"), options.get("start")
    keep = options.get("keep", Task.keep)
    if stop_after is not None and stop_after < 0:
        raise ConfigError(f"stop_after = {stop_after}: must be 0 or more")
    if keep < 1:
        raise ConfigError(f"keep = {keep}: a run goes on from its newest checkpoint; use 1 or more")
    if options.get("workers", 0) < 0:
        raise ConfigError(f"workers = {options.get('workers')}: give a number of processes, 0 for none")
    check_taught(job.recipe, job.model, options.get("teacher"))
    own = start and start.preprocess
    exif = job.recipe.exif or (own.exif if own else "ignore")
    whole = fit_dataset(job.model, open_dataset(job.data, data_dir).oriented(exif))
    for split in (whole.train, whole.test, whole.validation):
        if split is not None:
            split.on_damage = options.get("on_damage", "refuse")
    check_best(job, validates=bool(job.recipe.validation_fraction or whole.validation))
    dataset, validation = hold_out(whole, job.recipe.validation_fraction)
    check_labels(job.recipe, dataset)
    job.check()
    job, lines = resolve_class_weights(job, dataset)
    per_epoch = steps_per_epoch(len(dataset.train), job.recipe.batch_size)
    preprocess = make_preprocess(dataset, job.recipe, own)
    task = Task(
        job,
        dataset,
        validation,
        preprocess,
        per_epoch,
        stop_after,
        start,
        keep,
        options.get("profile"),
        options.get("teacher"),
        options.get("workers", 0),
        options.get("save_every", Task.save_every),
        (
            *options.get("notes", ()),
            *whole.notes,
            *lines,
            *_statistics(dataset, job, preprocess),
            *_unknown_pixels(start, job, preprocess),
            *_one_size(start, job),
        ),
    )
    if len(task.frozen) == len(task.parameter_names):  # `frozen` refuses patterns that match nothing
        raise ConfigError("--freeze: nothing is left to train; leave a pattern out")
    return task


def _statistics(dataset: ImageDataset, job: Job, preprocess: Preprocess) -> tuple[str, ...]:
    """Note the statistics of images of bands, which are no picture's."""
    if job.recipe.pixels != "data" or dataset.of_files or dataset.image_shape[2] in (1, 3):
        return ()
    mean, std = (", ".join(f"{x:.4g}" for x in values) for values in (preprocess.mean, preprocess.std))
    white = WHITE[preprocess.pixel_type]
    unit = f", in units of {white}" if white != 1 else ""
    return (
        f"{dataset.image_shape[2]} bands of {preprocess.pixel_type}: mean ({mean}) and deviation ({std})"
        f" of the training images{unit}",
    )


def _unknown_pixels(start: Start | None, job: Job, preprocess: Preprocess) -> tuple[str, ...]:
    """Note that nobody says how images were prepared for the weights to start from."""
    if start is None or start.preprocess is not None or job.recipe.pixels != "data":
        return ()
    mean, std = (", ".join(f"{x:.3f}" for x in values) for values in (preprocess.mean, preprocess.std))
    return (
        f"{start.name} does not say how its images were prepared: mean ({mean}) and deviation ({std})"
        " are those of the training images; --recipe.pixels half or imagenet sets others",
    )


def _one_size(start: Start | None, job: Job) -> tuple[str, ...]:
    """Note that images had sizes of their own for the weights to start from."""
    most = start.preprocess.max_patches if start and start.preprocess else None
    if start is None or most is None:
        return ()
    height, width = job.model.image_size
    return (
        f"{start.name} gives each image a size of its own (max_patches = {most}); this run, and what it"
        f" exports, has all at {height}x{width}",
    )
