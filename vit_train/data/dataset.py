"""A classification set, wherever it lies, with its fingerprint."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vit_config.errors import DataError
from vit_config.images.preprocess import Exif
from vit_train.data.records import DamagedRecordError, ImageShape, Records, classes_of


@dataclass(frozen=True)
class ImageDataset:
    """A classification set with a training and a test split."""

    name: str
    """The spec it was opened by, see `vit_train.sources.opening.open_dataset`."""
    train: Records
    test: Records
    num_classes: int
    image_shape: ImageShape
    class_names: tuple[str, ...] | None
    """Names of the classes in the order of the labels; None if unknown."""
    fingerprint: str
    """SHA-256 (hex) of name, version, classes, and every record of both splits, in order: equal for
    the same records anywhere, so a run is not resumed on other data."""
    shuffled: bool = False
    """Whether records are stored in no particular order; else they may be sorted by class."""
    of_files: bool = False
    """Whether images are pictures, which are read as RGB, or in as many channels as a model has."""
    validation: Records | None = None
    """The set's own split for validation, if it has one beside that for testing."""
    notes: tuple[str, ...] = ()
    """Parts of it that are not read, a sentence each."""
    turned: int = 0
    """Photos whose camera noted that their pixels are turned or mirrored."""

    def in_channels(self, count: int) -> ImageDataset:
        """Return the same set, its files read in `count` channels."""
        shape = (*self.image_shape[:2], count)
        return replace(self._read(image_shape=shape), image_shape=shape)

    def oriented(self, exif: Exif) -> ImageDataset:
        """Return the same set with photos turned as their camera noted, or with a note of how many."""
        if exif == "apply" or not self.turned:
            return self._read(exif=exif)
        of = "1 photo" if self.turned == 1 else f"{self.turned:,} photos"
        one, them = ("it is", "it") if self.turned == 1 else ("they are", "them")
        note = (
            f"{self.name}: the camera noted of {of} that {one} turned; {one} taken as the pixels lie"
            f" (--exif apply turns {them})"
        )
        return replace(self, notes=(*self.notes, note))

    def _read(self, **changes: Any) -> ImageDataset:
        """Return the same set with the records of all splits read otherwise."""
        names = ("train", "test", "validation")
        splits = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(self, **{name: each.like_these(**changes) for name, each in splits.items()})


MOST_CLASSES = 2**16
"""Most classes of a set with fewer images than classes; each takes a row of the model's head."""


def check_classes(spec: str, classes: int, images: int) -> None:
    """Check the number of a set's classes. DataError: there is none, or far more than images."""
    if not 1 <= classes <= max(MOST_CLASSES, images):
        raise DataError(
            f"{spec}: {classes} classes of {images} images; correct the highest label, or the number of"
            " classes that the set says"
        )


def named_classes(spec: str, names: Sequence[str]) -> tuple[str, ...]:
    """Check and return the names of a set's classes, in the order of their labels.

    Raises:
        DataError: two classes have one name, however its letters and spaces are written, one has none,
            or one has a name that no weights file can hold.
    """
    normalised = [unicodedata.normalize("NFC", name).strip() for name in names]
    twice = [name for name, count in Counter(normalised).items() if count > 1]
    if twice or "" in normalised:
        what = f"two classes are called {twice[0]!r}" if twice else "a class has no name"
        raise DataError(f"{spec}: {what}; give each a name of its own")
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(f"{spec}: the name of class {name!r} is not UTF-8; rename it") from None
    return tuple(names)


def train_and_test(
    spec: str, splits: Mapping[str, Records], there: Collection[str] | None = None
) -> tuple[Records, Records]:
    """Return the split to train on, and the first of the others that has labels: sets of a contest
    publish their test split with every label -1.

    Args:
        there: names of all splits of the set, if some of them are not used.

    Raises:
        DataError: one of the two is missing.
    """
    names = ("test", "validation", "val")
    test = next((splits[name] for name in names if _has_labels(splits.get(name))), None)
    if "train" not in splits or test is None:
        raise DataError(
            f"{spec}: has the splits {', '.join(splits if there is None else there) or 'none'}; expected"
            ' "train", and "test" or "validation" with labels'
        )
    return splits["train"], test


def _has_labels(records: Records | None) -> bool:
    if records is None:
        return False
    for index in range(len(records)):
        try:
            return min(classes_of(records.read_raw(index)["label"]), default=0) >= 0
        except DamagedRecordError:
            continue
    return False
