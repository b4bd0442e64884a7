"""Uneven classes: how many images each has, what it weighs, epochs in which all come equally often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vit_config import DataError
from vit_config.job import Job
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records

SHOWN = 20
"""Number of classes that are named with their counts."""


def class_counts(records: Records) -> np.ndarray:
    """Count the labels of each class, (classes,); damaged records have none."""
    known = [each for each in records.labels if each is not None]
    if records.several:
        return records.targets(known).sum(axis=0, dtype=np.float64).astype(int)
    return np.bincount(np.array(known, int), minlength=records.num_classes)


def resolve_class_weights(job: Job, dataset: ImageDataset) -> tuple[Job, tuple[str, ...]]:
    """Put numbers in the place of balanced class weights, so that they are part of the run's identity.

    Returns:
        The job, and lines on the classes of the training images for the user.

    Raises:
        DataError: a class to be balanced has no training images.
    """
    recipe, classes = job.recipe, dataset.num_classes
    given = recipe.class_weights
    if not given and recipe.sampling != "balanced":
        return job, ()
    counts, names = class_counts(dataset.train), dataset.class_names or tuple(map(str, range(classes)))
    if (given == "balanced" or recipe.sampling == "balanced") and not counts.all():
        empty = names[int(counts.argmin())]
        raise DataError(
            f"{dataset.name}: class {empty} has no training images, so it cannot be balanced; add some,"
            " or leave the class out"
        )
    if given == "balanced":
        given = tuple((counts.sum() / (classes * counts)).tolist())
        job = replace(job, recipe=recipe.replace(class_weights=given))
    shown = [f"{name} {count}" for name, count in zip(names, counts.tolist(), strict=True)]
    if given:
        shown = [f"{each} (weight {weight:.3g})" for each, weight in zip(shown, given, strict=True)]
    more = f" and {classes - SHOWN} more" if classes > SHOWN else ""
    lines = [f"training images of each class: {', '.join(shown[:SHOWN])}{more}"]
    if recipe.sampling == "balanced":
        share = len(dataset.train) / classes
        lines.append(
            f"an epoch has {share:.4g} images of each class; one of {names[int(counts.argmin())]} comes"
            f" {share / counts.min():.3g} times, one of {names[int(counts.argmax())]}"
            f" {share / counts.max():.3g} times"
        )
    return job, tuple(lines)


class BalancedOrder:
    """Orders of epochs in which every class comes equally often, and every record of a class, too.

    An epoch is a function of its number: class k draws its records in permutations, one after the other,
    which go on where the epoch before ended.

    Args:
        records: the training records, of which damaged ones are never drawn.
        key: (2,) uint64, of the random streams.
    """

    def __init__(self, records: Records, key: np.ndarray) -> None:
        labels = np.array([-1 if each is None else each for each in records.labels])
        self._members = [np.flatnonzero(labels == k) for k in range(records.num_classes)]
        self._size, self._key = len(records), key

    def __call__(self, epoch: int) -> np.ndarray:
        """Return the records of an epoch, as many as there are in all."""
        drawn = [self._of_class(k, epoch) for k in range(len(self._members))]
        order = np.concatenate(drawn)
        return order[np.argsort(self._bits(0, epoch, len(order)), kind="stable")]

    def _of_class(self, k: int, epoch: int) -> np.ndarray:
        """Return the records of a class in an epoch, in its own order."""
        members = self._members[k]
        first, end = (self._drawn_before(k, each) for each in (epoch, epoch + 1))
        rounds = range(first // len(members), -(-end // len(members)))
        turns = [np.argsort(self._bits(1 + k, each, len(members)), kind="stable") for each in rounds]
        start = first - rounds.start * len(members)
        return members[np.concatenate(turns)[start : start + end - first]] if turns else members[:0]

    def _drawn_before(self, k: int, epoch: int) -> int:
        """Count the draws of a class before an epoch: a share of all draws, which these counts add up to
        (Hermite's identity)."""
        classes = len(self._members)
        return (epoch * self._size + classes - 1 - k) // classes

    def _bits(self, stream: int, number: int, count: int) -> np.ndarray:
        """Return raw bits, which numpy promises for ever."""
        return np.random.Philox(key=self._key, counter=[0, stream, 0, number]).random_raw(count)
