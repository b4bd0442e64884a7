"""The records of one split: decoded, checked, and kept when they are small."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from vit_config.errors import DataError, InputError, first_line
from vit_config.images.pixels import LONGEST_FILE, decode
from vit_config.images.preprocess import Exif, PixelType
from vit_config.waiting import Waiting

ImageShape = tuple[int | None, int | None, int]
"""(H, W, C); None for a side that varies."""

CACHE_BYTES = 256 * 2**20
"""Bytes up to which a split is decoded once and kept, if all images have one size; MNIST and
CIFAR fit."""

OBJECT_BYTES = 512
"""Bytes that Python takes for a kept record besides its pixels."""

Label = int | tuple[int, ...]
"""The class of an image; or all its classes, each once and in order, where it may have several."""

OnDamage = Literal["refuse", "replace"]


TO_DO = "; copy or prepare the set again, or pass over what cannot be read (--damaged replace)"
"""End of the message of a damaged record, which says what to do."""


class DamagedRecordError(DataError):
    """Damage to a record: its bytes are not those that were written."""


class Record(TypedDict):
    """One example of a classification set."""

    image: np.ndarray
    """(H, W, C) uint8, or of the type that the set declares; read-only."""
    label: Label


class StoredRecord(TypedDict):
    """A `Record` as a file stores it."""

    image: bytes | np.ndarray
    label: Label


class Records:
    """One split: `len(records)`, and `records[i]` is a checked `Record`; safe to read by threads.

    Args:
        raw: the stored records: mappings with an "image", as PNG or JPEG bytes or as (H, W, C)
            uint8, and a "label", an integer or a tuple of them. They may have `labels`, those of all
            records.
        where: name of the split in messages.
        num_classes: labels are 0 .. num_classes - 1.
        image_shape: shape of the images.
        on_damage: whether a record that cannot be read is refused, or replaced by the next readable
            one; `damaged` then has its number and its error.
        pixel_type: type of the pixels of an image.
        several: whether an image has any number of labels.
        least: length of an image's smaller side that is enough, see `vit_config.images.pixels.decode`.
        exif: whether photos are turned as their camera noted, see `Preprocess`.
    """

    def __init__(
        self,
        raw: Sequence[Any],
        *,
        where: str,
        num_classes: int,
        image_shape: ImageShape,
        on_damage: OnDamage = "refuse",
        pixel_type: PixelType = "uint8",
        several: bool = False,
        least: int | None = None,
        exif: Exif = "ignore",
    ) -> None:
        self.raw, self.where, self.several, self.least = raw, where, several, least
        self.exif: Exif = exif
        self.pixel_type: PixelType = pixel_type
        self._labels: list[Label | None] | None = None
        self.on_damage: OnDamage = on_damage
        self.damaged: dict[int, DataError] = {}
        self.num_classes, self.image_shape = num_classes, image_shape
        height, width, channels = image_shape
        fits = False
        if height is not None and width is not None:
            fits = len(raw) * (height * width * channels + OBJECT_BYTES) <= CACHE_BYTES
        self._cache: dict[int, Record] | None = {} if fits else None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache out: another process reads for itself."""
        return {**vars(self), "_cache": None if self._cache is None else {}}

    def __len__(self) -> int:
        return len(self.raw)

    def reduced(self, least: int | None) -> Records:
        """Return the same records, JPEGs among them decoded to a smaller size where `least`
        allows it."""
        if least is None:
            return self
        reduced = self.like_these(image_shape=(None, None, self.image_shape[2]), least=least)
        reduced.damaged = self.damaged
        return reduced

    def like_these(self, **changes: Any) -> Records:
        """Return records with the same arguments as these, except for `changes`."""
        same = ("raw", "where", "num_classes", "image_shape", "on_damage")
        same += ("pixel_type", "several", "least", "exif")
        return Records(**{**{name: getattr(self, name) for name in same}, **changes})

    def __getitem__(self, index: int) -> Record:
        """Read one record, or the next one if it is damaged and `on_damage` says so.

        Raises:
            DataError: the file is damaged, or the image or label is not as the set declares.
        """
        if self._cache is None:
            return self._read_or_replace(index)
        if index not in self._cache:
            self._cache[index] = self._read_or_replace(index)
        return self._cache[index]

    def name(self, index: int) -> str:
        """Return a record's name in messages: its split, and its number or file name."""
        own = getattr(self.raw, "name", None)
        return f"{self.where}, {f'record {index}' if own is None else own(index)}"

    def _read_or_replace(self, index: int) -> Record:
        for step in range(len(self)):
            try:
                return self._read((index + step) % len(self))
            except DamagedRecordError as error:
                if self.on_damage == "refuse":
                    raise
                self.damaged[(index + step) % len(self)] = error
        raise DataError(f"{self.where}: no record can be read; copy or prepare the set again")

    @property
    def labels(self) -> list[Label | None]:
        """The labels of all records, None for a damaged one; where files do not list them, every record
        is read once.

        Raises:
            DataError: a label is not as the set declares.
        """
        if self._labels is None:
            listed, numbers = getattr(self.raw, "labels", None), range(len(self))
            what = f"{self.where}: the labels of {len(self):,} images are read"
            with Waiting(what, len(self)) as waiting:
                labels = (
                    map(self._read_label, numbers)
                    if listed is None
                    else map(self._checked, numbers, listed)
                )
                self._labels = list(waiting.over(labels, len(self)))
        return self._labels

    def _read_label(self, index: int) -> Label | None:
        try:
            return self._checked(index, self.read_raw(index)["label"])
        except DamagedRecordError:
            if self.on_damage == "refuse":
                raise
            return None

    def targets(self, labels: Sequence[Label]) -> np.ndarray:
        """Return labels as a model is taught them: (B,) int32; or (B, classes) float32, 1 for each class
        of an image that may have several."""
        if not self.several:
            return np.array(labels, np.int32)
        targets = np.zeros((len(labels), self.num_classes), np.float32)
        for row, classes in enumerate(labels):
            targets[row, list(classes_of(classes))] = 1.0
        return targets

    def read_raw(self, index: int) -> StoredRecord:
        """Read a record as it is stored, its image not yet decoded.

        Raises:
            DamagedRecordError: the file fails its own checksums, is truncated, or has no image there.
            DataError: the label is not a whole number.
        """
        try:
            raw = self.raw[index]
        except (OSError, RuntimeError) as error:
            raise self._damaged(index, error) from None
        image, label = raw["image"], raw["label"]
        if not isinstance(image, bytes | np.ndarray):
            raise self._damaged(index, f"its image is a {type(image).__name__}")
        if isinstance(image, bytes) and len(image) > LONGEST_FILE:
            raise self._damaged(index, f"{len(image)} bytes are no image; {LONGEST_FILE} are enough")
        try:
            whole = tuple(map(_whole, label)) if self.several else _whole(label)
        except TypeError:
            what = "no tuple of whole numbers" if self.several else "no whole number"
            raise DataError(
                f"{self.name(index)}: label {label!r} is {what}; correct the data set"
            ) from None
        return {"image": image, "label": whole}

    def _damaged(self, index: int, reason: object) -> DamagedRecordError:
        text = first_line(reason if isinstance(reason, BaseException) else str(reason))
        return DamagedRecordError(f"{self.name(index)}: damaged ({text}){TO_DO}")

    def _checked(self, index: int, label: Label) -> Label:
        """Return a label whose classes exist."""
        for each in classes_of(label):
            if not 0 <= each < self.num_classes:
                raise DataError(
                    f"{self.name(index)}: label {each} is not one of num_classes ="
                    f" {self.num_classes} (0 to {self.num_classes - 1}); correct the data set"
                )
        return label

    def _read(self, index: int) -> Record:
        stored = self.read_raw(index)
        image, label = stored["image"], stored["label"]
        if isinstance(image, bytes):
            try:
                image = decode(image, self.image_shape[2], self.least, exif=self.exif)
            except InputError as error:
                raise self._damaged(index, error) from None
        self._checked(index, label)
        declared = self.image_shape
        if image.dtype != self.pixel_type or not _fits(image.shape, declared):
            raise DataError(
                f"{self.name(index)}: image of shape {image.shape} and type {image.dtype},"
                f" but the set declares {declared} {self.pixel_type}; correct the data set"
            )
        image = image.view()
        image.setflags(write=False)  # it may be handed out again
        return {"image": image, "label": label}


def _whole(label: Any) -> int:
    """Return a label as an integer. TypeError: it is no whole number."""
    if isinstance(label, bool | np.bool_):
        raise TypeError("a truth value is no label")
    return operator.index(label)


def classes_of(label: Label) -> tuple[int, ...]:
    """Return the classes that a label says: one, or any number."""
    return label if isinstance(label, tuple) else (label,)


def _fits(shape: tuple[int, ...], declared: ImageShape) -> bool:
    return len(shape) == 3 and all(
        want in (None, side) for side, want in zip(shape, declared, strict=True)
    )
