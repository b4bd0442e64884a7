"""The best evaluation of a run, and early stopping after too many evaluations without a better one.

Both follow from the run's log alone, so a run that was interrupted chooses as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vit_config import ConfigError
from vit_config.job import Job


class Best:
    """The best of the evaluations so far; of equal ones the earliest.

    Args:
        by: the score that decides: ``loss`` (lower is better) or ``accuracy`` (higher is better).
        patience: evaluations in a row without a better one after which the run stops; None for no limit.
    """

    def __init__(self, by: str, patience: int | None = None) -> None:
        self.by, self.patience = by, patience
        self.step: int | None = None
        """Updates done at the best evaluation; None before the first."""
        self.value = math.inf if by == "loss" else -math.inf
        self.since = 0
        """Evaluations since the best one."""

    def note(self, step: int, scores: Mapping[str, Any]) -> bool:
        """Record an evaluation; return whether it is the best so far."""
        value = float(scores[self.by])
        better = value < self.value if self.by == "loss" else value > self.value
        if better:
            self.step, self.value, self.since = step, value, 0
        else:
            self.since += 1
        return better

    @property
    def numbers(self) -> np.ndarray:
        """The whole state, (3,) float64; see `take`."""
        return np.array([-1 if self.step is None else self.step, self.value, self.since], np.float64)

    def take(self, numbers: np.ndarray) -> None:
        """Adopt the state of another process's `Best`, its `numbers`."""
        step, value, since = numbers.tolist()
        self.step, self.value, self.since = None if step < 0 else int(step), value, int(since)

    @property
    def is_enough(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.since >= self.patience


def best_so_far(job: Job, events: Iterable[Mapping[str, Any]]) -> Best | None:
    """Find the best validation in a log that a run continues; None if the job asks for none."""
    if job.best == "none":
        return None
    best = Best(job.best, job.patience)
    for event in events:
        if event["kind"] == "validation":
            best.note(event["step"], event)
    return best


def check_best(job: Job, validates: bool) -> None:
    """Refuse patience without a criterion, or that can end no run; and a criterion without validation
    images.

    Args:
        validates: whether there are any.

    Raises:
        ConfigError: the message names the field to set.
    """
    if job.patience is not None and job.patience < 1:
        raise ConfigError(f"patience = {job.patience}: give a number of evaluations, 1 or more")
    if job.patience is not None and job.best == "none":
        raise ConfigError(
            f"patience = {job.patience} waits for a better evaluation; set best = loss or accuracy"
        )
    recipe = job.recipe
    if job.patience is not None and job.patience + 1 >= recipe.evaluations:
        sooner = ", a smaller --recipe.eval-every-epochs" * (recipe.epochs_between_evaluations > 1)
        raise ConfigError(
            f"patience = {job.patience} cannot end a run of {recipe.epochs} epochs, which is evaluated"
            f" {recipe.evaluations} times; give more --recipe.epochs{sooner}, or no --patience"
        )
    if job.best != "none" and not validates:
        raise ConfigError(
            f'best = "{job.best}" chooses by the validation images, but validation_fraction = 0.0; set'
            " --recipe.validation-fraction"
        )
