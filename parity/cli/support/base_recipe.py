"""The recipe that a user changes: what a change replaces, or leaves without effect, gives way to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from parity.cli.support.reading import data_folder
from vit_config import ConfigError, Recipe, Schema
from vit_config.augmentation import AUGMENT_GOES_WITH
from vit_config.fine_tuning import TrainingSet
from vit_config.recipe_rules import GOES_WITH

S = TypeVar("S", bound=Schema)
Rules = Sequence[tuple[str, str, tuple[Any, ...]]]

PREFIX = "--recipe."
WARMUPS = ("warmup_epochs", "warmup_fraction")
"""The two ways to say how long the warm-up is; one replaces the other."""
RULES: Rules = (
    *GOES_WITH,
    *((field, WARMUPS[1], values) for field, other, values in GOES_WITH if other == WARMUPS[0]),
)


def given_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Return what the recipe's flags set, by dotted field: null, a number or a word."""
    flags = {word.partition("=")[0].replace("_", "-") for word in argv if word.startswith(PREFIX)}
    fields = {flag: flag.removeprefix(PREFIX).replace("-", "_").replace("no_", "") for flag in flags}
    return {field: _value(word_after(flag, argv) or "") for flag, field in fields.items()}


def giving_way(
    recipe: Recipe, given: Mapping[str, Any], say: Callable[[str], None] = lambda line: None
) -> Recipe:
    """Return a recipe without what some changes replace or leave without effect, with a warm-up that
    fits their epochs.

    A change of `warmup_epochs` replaces `warmup_fraction`, and the reverse; `augment.crop` = none leaves
    `augment.crop_area` without effect.

    Args:
        given: the changes, by dotted field.
        say: takes a line on a warm-up that does not fit.
    """
    epochs = given.get("epochs")
    if isinstance(epochs, int) and not given.keys() & WARMUPS:
        fitting = recipe.shortened(epochs)
        if fitting is not recipe:
            say(
                f"warm-up: {fitting.warmup:g} of {epochs} epochs, the recipe's share, as its"
                f" {recipe.warmup:g} do not fit; --recipe.warmup-fraction sets another"
            )
        recipe = fitting
    warmup = {name: given.get(name, 0.0) for name in WARMUPS} if given.keys() & WARMUPS else {}
    augment = {
        field.removeprefix("augment."): value
        for field, value in given.items()
        if field.startswith("augment.")
    }
    try:
        return _with_changes(recipe, given, RULES, warmup).replace(
            augment=_with_changes(recipe.augment, augment, AUGMENT_GOES_WITH, {})
        )
    except ConfigError:  # of a change itself: said where it is made
        return recipe


def _with_changes(schema: S, given: Mapping[str, Any], rules: Rules, changes: dict[str, Any]) -> S:
    """Make some changes, and reset the fields that have no effect beside what is given."""
    usual = type(schema).model_fields
    for field, other, values in rules:
        if other not in given:
            continue
        value = given[other]
        holds = value in values if values else bool(value)
        if field not in given and not holds:
            changes |= {other: value, field: usual[field].default}
        elif field in given and holds and usual[field].default is None:  # `other` may need it
            changes |= {other: value, field: given[field]}
    return schema.replace(**changes) if changes else schema


def _value(word: str) -> Any:
    if word == "None":
        return None
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return word


PUBLISHED = {
    "digits": 898,
    "mnist5k": 4_000,
    "tfds:imagenet2012": 1_281_167,
    "tfds:cifar10": 50_000,
    "tfds:cifar100": 50_000,
    "tfds:mnist": 60_000,
}
"""Number of training images of sets that recipes name, for machines without the set."""
NUMERALS = tuple("0123456789")
DRAWN = ("digits", "mnist5k", "tfds:mnist")
"""Those of them whose classes are called by numerals."""


def word_after(flag: str, argv: Sequence[str]) -> str | None:
    """Return the value of a flag, given as ``FLAG VALUE`` or ``FLAG=VALUE``, the last if there are
    several; None if it is absent."""
    for place in reversed(range(len(argv))):
        name, equals, value = argv[place].partition("=")
        if name.replace("_", "-") == flag:
            return value if equals else argv[place + 1] if place + 1 < len(argv) else None
    return None


def about_images(argv: Sequence[str]) -> TrainingSet:
    """Return what is known of the training images of the flags' data set without preparing it."""
    spec = word_after("--data", argv) or "digits"
    published = TrainingSet(PUBLISHED.get(spec), NUMERALS if spec in DRAWN else None)
    if spec == "digits":  # opening the digits would prepare them
        return published
    from vit_train.sources.opening import open_dataset

    folder = word_after("--data-dir", argv)
    try:
        dataset = open_dataset(spec, data_folder(Path(folder) if folder else None))
    except (ValueError, OSError, ImportError):
        return published
    return TrainingSet(len(dataset.train), dataset.class_names, dataset.num_classes)
