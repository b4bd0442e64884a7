"""Batches for training and evaluation: shuffled, augmented and normalised, the same every time.

Batch number `step` is a function of the data set, the recipe and `step` alone, and threads only read
ahead: nothing depends on their number, or on where a run was interrupted. Order and augmentation come
from Philox streams, whose raw bits are the same in every version of numpy.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import lru_cache
from typing import Any, TypedDict

import numpy as np

from vit_config.augmentation import Augment
from vit_config.errors import DataError
from vit_config.images.preprocess import Preprocess
from vit_config.recipe import Recipe
from vit_train.augmentation.erase import erase
from vit_train.augmentation.mixing import draw_mixing, mixed_images, mixed_labels, mixed_with
from vit_train.augmentation.views import Views, lay_out
from vit_train.batches.balance import BalancedOrder
from vit_train.batches.read_ahead import read_ahead
from vit_train.batches.workers import read_by_workers
from vit_train.data.dataset import ImageDataset
from vit_train.data.images import fit_image
from vit_train.data.records import Records
from vit_train.sources.opening import open_dataset

__all__ = [
    "EvalBatch",
    "ImageDataset",
    "TrainBatch",
    "eval_batches",
    "open_dataset",
    "steps_per_epoch",
    "train_batches",
]

NUM_THREADS = min(16, os.cpu_count() or 1)
Draw = tuple[int, int, int]
"""Epoch, record and view: with the seed they fix how an image is changed."""


class TrainBatch(TypedDict):
    """B training examples."""

    image: np.ndarray
    """(B, H, W, C) float32, normalised."""
    label: np.ndarray
    """(B,) int32; or (B, classes) float32, the shares of the classes in mixed images, or 1 for each
    class of images that may have several."""


class EvalBatch(TrainBatch):
    """B evaluation examples; the last batch is filled up with zeros."""

    mask: np.ndarray
    """(B,) bool, false where the batch was filled up."""


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Count the full batches in an epoch; the examples left over differ from epoch to epoch.

    Raises:
        DataError: there is not even one.
    """
    if batch_size > num_examples:
        raise DataError(
            f"batch_size = {batch_size} is more than the {num_examples} training examples; use"
            f" {num_examples} or less"
        )
    return num_examples // batch_size


def train_batches(
    dataset: ImageDataset,
    recipe: Recipe,
    preprocess: Preprocess,
    *,
    image_size: tuple[int, int],
    start_step: int = 0,
    num_threads: int = NUM_THREADS,
    rows: np.ndarray | None = None,
    num_workers: int = 0,
) -> Generator[TrainBatch, None, None]:
    """Yield the training batches of a run: `recipe.epochs` epochs, each shuffled differently.

    Unless the recipe crops, an image is resized to `image_size` without cropping:
    `preprocess.crop_fraction` applies to evaluation only. Augmentation draws from a random stream of its
    own for each (seed, epoch, record, view), mixup and cutmix from one for each (seed, step).

    Args:
        image_size: (H, W) of the model's input, in pixels. Where the recipe has a `device_side`, batches
            are what `vit_jax.train.augment` changes.
        start_step: skips the first batches without reading them; the rest are the same, bit for bit.
        num_threads: number of threads that prepare one batch each; 0 prepares a batch when it is
            asked for.
        rows: the rows of each batch to return, ascending, if other processes read the rest. Images
            that these rows are mixed with are read as well.
        num_workers: number of processes that prepare batches instead of threads; 0 for threads.

    Raises:
        DataError: immediately, if the batch is larger than the training set, the channels do not match,
            or `start_step` is past the end; later, when a batch contains a damaged record.
    """
    total = recipe.epochs * steps_per_epoch(len(dataset.train), recipe.batch_size)
    if start_step > total:
        raise DataError(
            f"start_step = {start_step} is past the last of {total} steps ({recipe.epochs} epochs"
            f" of {len(dataset.train)} examples in batches of {recipe.batch_size}); raise epochs"
        )
    _check_channels(dataset.train, preprocess)
    records = dataset.train.reduced(recipe.augment.decode_side)
    batches = _TrainBatches(records, recipe, preprocess, image_size, rows)
    if num_workers:
        return read_by_workers(batches, start=start_step, num_workers=num_workers)
    return read_ahead(batches, start=start_step, num_threads=num_threads)


def eval_batches(
    source: Records,
    preprocess: Preprocess,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    num_threads: int = NUM_THREADS,
    rows: np.ndarray | None = None,
) -> Generator[EvalBatch, None, None]:
    """Yield the evaluation batches of a split: each record once, in order, the last padded and masked.

    Args:
        image_size: (H, W) of the model's input, in pixels; images of another size are resized to cover
            `image_size / preprocess.crop_fraction` and cropped.
        num_threads: number of threads that prepare one batch each; 0 prepares a batch when it is
            asked for.
        rows: the rows of each batch to return, ascending, if other processes read the rest.

    Raises:
        DataError: immediately, if the channels do not match; later, when a batch contains a damaged
            record.
    """
    _check_channels(source, preprocess)
    batches = _EvalBatches(source, preprocess, image_size, batch_size, rows)
    return read_ahead(batches, num_threads=num_threads)


def _check_channels(source: Records, preprocess: Preprocess) -> None:
    channels, expected = source.image_shape[2], len(preprocess.mean)
    if channels != expected:
        count = f"{channels} channel{'s' if channels != 1 else ''}"
        raise DataError(
            f"{source.where}: images have {count}, the model and its preprocessing have"
            f" {expected}; set in_channels = {channels}, with a mean and a std for each"
        )


class _TrainBatches:
    """The batches of a run, as a random-access source."""

    def __init__(
        self,
        records: Records,
        recipe: Recipe,
        preprocess: Preprocess,
        image_size: tuple[int, int],
        rows: np.ndarray | None,
    ) -> None:
        self._records, self._recipe, self._size = records, recipe, image_size
        self._rows = np.arange(recipe.batch_size) if rows is None else rows
        mixes = recipe.mix.mixes
        self._read = mixed_with(self._rows, recipe.mix, recipe.batch_size) if mixes else self._rows
        self._preprocess = preprocess.replace(crop_fraction=1.0)
        self._steps = steps_per_epoch(len(records), recipe.batch_size)
        self._augments = recipe.augment != Augment()
        on_devices = recipe.device_side is not None
        self._views = Views(recipe.augment, image_size, self._preprocess, on_devices)
        keys = np.random.SeedSequence(recipe.seed).generate_state(6, np.uint64)
        self._order_key, self._augment_key, self._mix_key = keys[:2], keys[2:4], keys[4:]
        balanced = recipe.sampling == "balanced"
        draw = BalancedOrder(records, self._order_key) if balanced else self._draw_order
        self._order = lru_cache(maxsize=2)(draw)

    def __reduce__(self) -> Any:
        return _TrainBatches, (self._records, self._recipe, self._preprocess, self._size, self._rows)

    @property
    def damaged(self) -> dict[int, DataError]:
        """The records that could not be read so far, by number."""
        return self._records.damaged

    def __len__(self) -> int:
        return self._recipe.epochs * self._steps

    def __getitem__(self, index: int) -> TrainBatch:
        epoch, position = divmod(index, self._steps)
        recipe, size = self._recipe, self._recipe.batch_size
        # views of an image are neighbours
        places = (position * size + self._read).tolist()
        turns = [divmod(place, recipe.augment.repeats) for place in places]
        draws = [(epoch, int(self._order(epoch)[turn]), view) for turn, view in turns]
        records = [self._records[record] for _, record, _ in draws]
        images = [record["image"] for record in records]
        side = recipe.device_side
        batch = self._changed(images, draws) if side is None else self._on_squares(images, draws, side)
        batch["label"] = self._records.targets([record["label"] for record in records])
        if not recipe.mix.mixes:
            return batch
        bits = np.random.Philox(key=self._mix_key, counter=[0, 0, 0, index])
        mixing = draw_mixing(recipe.mix, size, self._size, np.random.Generator(bits))
        labels = self._whole(batch["label"])
        batch["label"] = mixed_labels(labels, mixing, self._records.num_classes, np.float32)[self._rows]
        if side is None:
            batch["image"] = mixed_images(self._whole(batch["image"]), mixing)[self._rows]
            return batch
        needed = np.searchsorted(self._read, self._rows)
        batch |= {name: batch[name][needed] for name in ("image", "size", "draw")}
        return batch | {name: x[self._rows] for name, x in mixing.in_32_bits().items()}

    def _changed(self, images: list[np.ndarray], draws: list[Draw]) -> Any:
        """Change images, and normalise them."""
        streams: list[Any] = [self._stream(draw) if self._augments else None for draw in draws]
        pairs = zip(images, streams, strict=True)
        changed = np.stack([self._views.changed(image, stream) for image, stream in pairs])
        changed = self._preprocess.normalise(changed)  # (B, H, W, C)
        if self._recipe.augment.erase:
            for image, stream in zip(changed, streams, strict=True):
                erase(image, self._recipe.augment.erase, stream)
        return {"image": changed}

    def _on_squares(self, images: list[np.ndarray], draws: list[Draw], side: int) -> Any:
        """Lay out images for `vit_jax.train.augment`: ``image`` (B, S, S, C) uint8, ``size`` (B, 2) and
        ``draw`` (B, 3) int32; a mixed batch also has the fields of `Mixing`."""
        squares = np.zeros((len(images), side, side, images[0].shape[2]), np.uint8)
        filter, pairs = self._recipe.augment.crop_filter, zip(images, squares, strict=True)
        sizes = [lay_out(image, square, filter) for image, square in pairs]
        return {
            "image": squares,
            "size": np.array(sizes, np.int32),
            "draw": np.array(draws, np.int32),
        }

    def _whole(self, rows: np.ndarray) -> np.ndarray:
        """Return a whole batch; rows that this process does not need stay empty."""
        batch = np.zeros((self._recipe.batch_size, *rows.shape[1:]), rows.dtype)
        batch[self._read] = rows
        return batch

    def _draw_order(self, epoch: int) -> np.ndarray:
        """Draw a permutation of the records; numpy promises raw bits, not `permutation`, for ever."""
        bits = np.random.Philox(key=self._order_key, counter=[0, 0, 0, epoch])
        return np.argsort(bits.random_raw(len(self._records)), kind="stable")

    def _stream(self, draw: Draw) -> np.random.Generator:
        epoch, record, view = draw
        bits = np.random.Philox(key=self._augment_key, counter=[0, view, record, epoch])
        return np.random.Generator(bits)


class _EvalBatches:
    """The batches of an evaluation, as a random-access source."""

    def __init__(
        self,
        records: Records,
        preprocess: Preprocess,
        image_size: tuple[int, int],
        batch_size: int,
        rows: np.ndarray | None,
    ) -> None:
        self._records, self._preprocess = records, preprocess
        self._size, self._batch_size = image_size, batch_size
        self._rows = np.arange(batch_size) if rows is None else rows

    def __len__(self) -> int:
        return -(-len(self._records) // self._batch_size)

    def __getitem__(self, index: int) -> EvalBatch:
        indices = index * self._batch_size + self._rows
        indices = indices[indices < len(self._records)].tolist()
        records = [self._records[index] for index in indices]
        images = [fit_image(record["image"], self._size, self._preprocess) for record in records]
        channels = self._records.image_shape[2]
        shape = (len(self._rows), *self._size, channels)
        batch: EvalBatch = {
            "image": np.zeros(shape, np.float32),
            "label": self._records.targets([() if self._records.several else 0] * len(self._rows)),
            "mask": np.zeros(len(self._rows), bool),
        }
        if records:  # in the last batch, other processes may have all of them
            count = len(records)
            batch["image"][:count] = self._preprocess.normalise(np.stack(images))  # (B, H, W, C)
            batch["label"][:count] = self._records.targets([record["label"] for record in records])
            # records that replace damaged ones do not count
            batch["mask"][:count] = [index not in self._records.damaged for index in indices]
        return batch
