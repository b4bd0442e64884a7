"""What a classification set is, wherever it lies, and by what it is known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from vit_train.records import ImageShape, Records

FINGERPRINT_RECORDS = 256
"""How many records of each split, evenly spread, a fingerprint looks at."""


@dataclass(frozen=True)
class ImageDataset:
    """A classification set with a training and a test split."""

    name: str
    """The spec it was opened by: "digits", "tfds:NAME" or "folder:PATH"."""
    train: Records
    test: Records
    num_classes: int
    image_shape: ImageShape
    class_names: tuple[str, ...] | None
    """In the order of the labels; None if unknown."""
    fingerprint: str
    """SHA-256 (hex) of name, version, classes, and size and sampled contents of both splits, in
    order: equal for the same files anywhere, so a run is not resumed on other data."""


def fingerprint(
    full_name: str, class_names: tuple[str, ...], shape: ImageShape, *splits: Records
) -> str:
    """SHA-256 (hex) of all that an `ImageDataset` is known by."""
    digest = hashlib.sha256(json.dumps([full_name, class_names, shape]).encode())
    for records in splits:
        digest.update(b"%d" % len(records))
        sampled = min(len(records), FINGERPRINT_RECORDS)
        for index in np.linspace(0, len(records) - 1, sampled).astype(int).tolist():
            raw = records.read_raw(index)
            image = raw["image"] if isinstance(raw["image"], bytes) else raw["image"].tobytes()
            digest.update(b"%d %d %d " % (index, raw["label"], len(image)) + image)
    return digest.hexdigest()
