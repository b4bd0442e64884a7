"""Fitting a data set to a model: channels and classes, a held-out share, mean and deviation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_config import ConfigError, DataError, Preprocess, Recipe, ViTConfig
from vit_config.images.pixels import FILE_CHANNELS
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD
from vit_train.batches.statistics import statistics_of
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records


def fit_dataset(cfg: ViTConfig, dataset: ImageDataset, *, trained: bool = False) -> ImageDataset:
    """Fit a data set to a model: files are read in as many channels as the model has.

    Args:
        trained: whether the model is trained already, so that no flag can change it.

    Raises:
        DataError: the model was not built for these channels or classes; one line with the flags to
            add, if there are any.
    """
    if dataset.of_files and cfg.in_channels in FILE_CHANNELS:
        dataset = dataset.in_channels(cfg.in_channels)
    wrong = []
    if dataset.image_shape[2] != cfg.in_channels:
        wrong.append(("channels", "channel", dataset.image_shape[2], "in_channels", cfg.in_channels))
    if dataset.num_classes != cfg.num_classes:
        wrong.append(("classes", "class", dataset.num_classes, "num_classes", cfg.num_classes))
    if wrong:
        facts = " and ".join(f"{has} {what if has != 1 else one}" for what, one, has, _, _ in wrong)
        fields = " and ".join(f"{field} = {value}" for *_, field, value in wrong)
        flags = " ".join(f"--model.{field.replace('_', '-')} {has}" for _, _, has, field, _ in wrong)
        todo = "give data like what it was trained on" if trained else f"add {flags}"
        raise DataError(f"{dataset.name} has {facts}, but the model has {fields}; {todo}")
    return dataset


def check_labels(recipe: Recipe, dataset: ImageDataset) -> None:
    """Refuse a recipe for another number of labels than the set's images have.

    Raises:
        ConfigError: it is; one line with the flags to add.
    """
    there = "several" if dataset.train.several else "one"
    if recipe.labels != there:
        images = "any number of labels" if there == "several" else "one label"
        loss = " --recipe.loss sigmoid_mean" if there == "several" else ""
        raise ConfigError(
            f'{dataset.name} has {images} for an image, but labels = "{recipe.labels}"; set'
            f" --recipe.labels {there}{loss}"
        )


def hold_out(dataset: ImageDataset, fraction: float) -> tuple[ImageDataset, Records | None]:
    """Hold a share of the training split out: the last of a shuffled one, else records spread evenly,
    class by class where the labels are listed. Without a share, the set's own validation split is used.

    Returns:
        The data set with the rest of the training split, and the share; None for a fraction of 0.

    Raises:
        DataError: nothing would be left on one side, or the set has a validation split of its own.
    """
    if not fraction:
        return dataset, dataset.validation
    if dataset.validation is not None:
        raise DataError(
            f"validation_fraction = {fraction}, but {dataset.name} has {len(dataset.validation)}"
            " validation images of its own; leave it out"
        )
    whole = dataset.train
    count = round(len(whole) * fraction)
    if not 0 < count < len(whole):
        raise DataError(
            f"validation_fraction = {fraction} of {len(whole)} training examples is {count}; both parts"
            " need at least one"
        )
    if dataset.shuffled:
        out = range(len(whole) - count, len(whole))
    else:
        labels = getattr(whole.raw, "labels", None)
        order = range(len(whole))
        if labels is not None and not whole.several:
            order = np.argsort(np.array(labels), kind="stable").tolist()
        out = sorted(order[index * len(whole) // count] for index in range(count))
    inside = set(out)
    rest = [index for index in range(len(whole)) if index not in inside]
    train, validation = (whole.like_these(raw=Subset(whole.raw, part)) for part in (rest, out))
    return dataclasses.replace(dataset, train=train), validation


class Subset(Sequence[Any]):
    """Some items of a sequence, numbered from 0."""

    def __init__(self, items: Any, indices: Sequence[int]):
        self.items, self.indices = items, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return self.items[self.indices[index]]

    @property
    def labels(self) -> list[Any] | None:
        """The items' labels, where all are listed."""
        listed = getattr(self.items, "labels", None)
        return None if listed is None else [listed[index] for index in self.indices]

    def name(self, index: int) -> str:
        """Return an item's name in messages."""
        number = self.indices[index]
        own = getattr(self.items, "name", None)
        return f"record {number}" if own is None else own(number)


def make_preprocess(
    dataset: ImageDataset, recipe: Recipe, given: Preprocess | None = None
) -> Preprocess:
    """Make the recipe's preprocessing; by default with the statistics of the training images.

    Args:
        given: the preprocessing of the weights to start from; used where the recipe's `pixels` are
            "data", except for its `eval_crop` and for `max_patches`: a run has one size.

    Raises:
        DataError: a channel has the same value everywhere, or pixels are of another type.
    """
    kind = dataset.train.pixel_type
    if recipe.pixels != "data" and kind == "float32":
        raise DataError(
            f'pixels = "{recipe.pixels}" is for pixels from 0 to a largest value, but {dataset.name} has'
            ' float32; leave it at "data"'
        )
    channels = dataset.image_shape[2]
    if recipe.pixels == "imagenet" and channels != len(IMAGENET_MEAN):
        raise DataError(
            f'pixels = "imagenet" is for {len(IMAGENET_MEAN)} channels, but {dataset.name} has'
            f' {channels}; leave it at "data", or set "half"'
        )
    half = (0.5,) * channels
    known = {"half": (half, half), "imagenet": (IMAGENET_MEAN, IMAGENET_STD)}.get(recipe.pixels)
    if known is None and given is not None:
        base = given
    else:
        mean, std = known or statistics_of(dataset)
        if 0.0 in std:
            raise DataError(
                f"{dataset.name}: channel {std.index(0.0)} of {len(std)} has the same value in all"
                " training images, so that its deviation is 0; leave it out"
            )
        base = Preprocess(mean=mean, std=std, pixel_type=kind)
    crop = base.crop_fraction if recipe.eval_crop is None else recipe.eval_crop
    several = dataset.train.several
    if base.pixel_type != kind:
        raise DataError(
            f"{dataset.name} has pixels of {kind}, but the weights to start from take {base.pixel_type};"
            " convert the images"
        )
    own = {"crop_fraction": crop, "class_names": dataset.class_names, "several_labels": several}
    return base.replace(max_patches=None, exif=dataset.train.exif, **own)
