"""The data that the flags of a training run name, read before all flags are parsed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vit_config.fine_tuning import TrainingSet

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


def data_folder(given: Path | None) -> Path:
    """Return the folder of prepared data sets."""
    folder = given or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return folder.expanduser().absolute()


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
    return TrainingSet(len(dataset.train), dataset.class_names)
