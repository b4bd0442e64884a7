"""A job and its data: which batches a run trains on, and how many of them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from vit_config import ConfigError, Preprocess
from vit_config.job import Job
from vit_config.parameters import parameters
from vit_train.data import eval_batches, open_dataset, steps_per_epoch, train_batches
from vit_train.distilling import check_taught
from vit_train.fit import check_fit, hold_out, make_preprocess
from vit_train.records import OnDamage, Records
from vit_train.sources import ImageDataset
from vit_train.start import Start, frozen_names


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
    start: Start | None = None
    """What the parameters begin as, if they are not drawn."""

    @property
    def frozen(self) -> frozenset[str]:
        """Parameters that are not trained, by common name."""
        return frozen_names(parameters(self.job.model), self.job.freeze)

    @property
    def total_steps(self) -> int:
        """Updates of the whole recipe."""
        return self.job.recipe.epochs * self.steps_per_epoch

    def batches(self, start_step: int, rows: np.ndarray | None = None) -> Generator[Any, None, None]:
        """The training batches from a step on, or some rows of each."""
        how: dict[str, Any] = {"image_size": self.job.model.image_size, "rows": rows}
        return train_batches(
            self.dataset, self.job.recipe, self.preprocess, start_step=start_step, **how
        )

    def eval_batches(
        self, records: Records, rows: np.ndarray | None = None
    ) -> Generator[Any, None, None]:
        """A split in padded batches, or some rows of each."""
        how: dict[str, Any] = {"image_size": self.job.model.image_size, "rows": rows}
        return eval_batches(records, self.preprocess, batch_size=self.job.recipe.batch_size, **how)

    @property
    def damaged(self) -> list[str]:
        """What was wrong with the records that could not be read so far, a sentence each."""
        splits = [self.dataset.train, self.validation, self.dataset.test]
        found = [each.damaged for each in splits if each is not None]
        return [str(error) for errors in found for _, error in sorted(errors.items())]

    def note_resizing(self, console: Console) -> None:
        """Say so where the images do not have the model's size."""
        found, wanted = self.dataset.image_shape[:2], self.job.model.image_size
        if found != wanted:
            size = "x".join(map(str, found)) if all(found) else "any size"
            console.print(f"images of {size} are resized to {wanted[0]}x{wanted[1]}", highlight=False)


def make_task(
    job: Job,
    data_dir: Path,
    stop_after: int | None = None,
    start: Start | None = None,
    on_damage: OnDamage = "refuse",
) -> Task:
    """Open a job's data and see that all fits together.

    Weights to start from say how images are prepared; without them, or where they do not, mean and
    deviation are those of the training images.

    Raises:
        ConfigError, DataError, MissingFileError: it does not.
    """
    if stop_after is not None and stop_after < 0:
        raise ConfigError(f"stop_after = {stop_after}: must be 0 or more")
    check_taught(job.recipe)
    whole = open_dataset(job.data, data_dir)
    whole.train.on_damage = whole.test.on_damage = on_damage
    check_fit(job.model, whole)
    dataset, validation = hold_out(whole, job.recipe.validation_fraction)
    per_epoch = steps_per_epoch(len(dataset.train), job.recipe.batch_size)
    frozen_names(parameters(job.model), job.freeze)  # refuses a pattern that means nothing
    preprocess = make_preprocess(dataset, job.recipe, start.preprocess if start else None)
    return Task(job, dataset, validation, preprocess, per_epoch, stop_after, start)
