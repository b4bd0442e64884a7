"""The recipe of a run that starts from weights and has none of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import NamedTuple

from vit_config.augmentation import Augment
from vit_config.recipe import Recipe

SIZES = ((1_000, 30, 32, 3e-4), (10_000, 20, 64, 5e-4), (None, 10, 128, 7e-4))
"""Up to how many images; then the fewest epochs, images in a batch and the peak learning rate, which
grows with the root of the batch."""
STEPS, EPOCHS = 1_000, 100
"""Fewest steps of a run, unless that takes more than so many epochs."""
BATCHES = 4
"""Fewest batches of an epoch, into which a smaller set is cut."""
CHARACTERS = 10
"""Fewest classes called by one character each that are taken for written characters; fewer may be
grades, such as 0 to 4."""


class TrainingSet(NamedTuple):
    """A training set, as far as it is known before it is opened for training."""

    count: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    class_names: tuple[str, ...] | None = None
    classes: int | None = None


def fine_tuning(images: TrainingSet, batch: object = None) -> Recipe:
    """Make a recipe for weights that have been trained already.

    AdamW with a learning rate that falls from layer to layer (BEiT, arXiv 2106.08254, and MAE, arXiv
    2111.06377, fine-tune so), a warm-up and half a cosine; random resized crops, flips and smoothed
    labels.

    Args:
        batch: the user's number of images in a batch, which the learning rate follows; anything but a
            whole number from 1 on is ignored.
    """
    count = images.count
    _, epochs, usual, rate = next(
        size for size in SIZES if size[0] is None or (count is not None and count <= size[0])
    )
    if count is not None:
        usual = max(min(usual, count // BATCHES), 1)
    chosen = batch if isinstance(batch, int) and batch >= 1 else usual
    if count is not None:
        epochs = max(epochs, min(EPOCHS, math.ceil(STEPS / max(count // chosen, 1))))
    what, _ = without(images.class_names)
    crop = Augment() if "crops" in what else Augment(crop="torchvision", crop_area=(0.35, 1.0))
    return Recipe(
        epochs=epochs,
        batch_size=chosen,
        learning_rate=float(f"{rate * math.sqrt(chosen / usual):.2g}"),
        weight_decay=0.05,
        layer_decay=0.75,
        clip_norm=1.0,
        label_smoothing=0.1,
        warmup_fraction=0.1,
        augment=crop.replace(flip="flips" not in what),
    )


def without(class_names: tuple[str, ...] | None) -> tuple[str, str]:
    """Return what may turn an image into one of another class, going by the names of the classes, and
    why: crops and flips of written characters, flips of what has sides; empty if no name says so."""
    names = class_names or ()
    if len(names) >= CHARACTERS and all(len(name) == 1 for name in names):
        why = f"the classes are called like written characters: {', '.join(names[:3])}, ..."
        return "crops and flips", why
    sided = (name for name in names if {"left", "right"} & set(re.split(r"[\W_]+", name.lower())))
    return next((("flips", f"a class is called {name}") for name in sided), ("", ""))


def summary(recipe: Recipe, images: TrainingSet, given: Collection[str] = ()) -> list[str]:
    """Describe a recipe for fine-tuning, a line for each choice, with the flag that changes it.

    Args:
        given: dotted fields that the user gave; their lines are marked.
    """
    augment, (what, why) = recipe.augment, without(images.class_names)
    is_area = augment.crop in ("torchvision", "tensorflow")
    crop = "{:.0%} to {:.0%} of the image".format(*augment.crop_area) if is_area else augment.crop
    share = not recipe.warmup_epochs
    warmup = f"{recipe.warmup_fraction:.0%} of the run" if share else f"{recipe.warmup:g} epochs"
    flip = "yes" if augment.flip else "no"
    lines: tuple[tuple[str, object, str], ...] = (
        ("epochs", recipe.epochs, "epochs"),
        ("batch", recipe.batch_size, "batch-size"),
        ("optimizer", recipe.optimizer, "optimizer"),
        ("learning rate", f"{recipe.learning_rate:g} at most", "learning-rate"),
        ("schedule", recipe.schedule, "schedule"),
        ("warm-up", warmup, "warmup-fraction" if share else "warmup-epochs"),
        ("layer decay", f"{recipe.layer_decay:g} a layer", "layer-decay"),
        ("weight decay", f"{recipe.weight_decay:g}", "weight-decay"),
        ("gradients", f"clipped at {recipe.clip_norm}", "clip-norm"),
        ("smoothing", f"{recipe.label_smoothing:g} of the labels", "label-smoothing"),
        ("crops", crop, "augment.crop"),
        ("flips", flip, "augment.no-flip" if augment.flip else "augment.flip"),
    )
    known = "an unknown number of" if images.count is None else f"{images.count:,}"
    rows = [f"fine-tuning recipe for {known} images; a flag changes its line, --config FILE all of them"]
    for name, value, flag in lines:
        mine = " (given)" if flag.replace("-", "_").replace(".no_", ".") in given else ""
        rows.append(f"  {name:<15}{f'{value}{mine}':<28} --recipe.{flag}")
    if why:
        rows.append(f"  no {what.replace(' and ', ' or ')} by default, because {why}")
    return rows
