"""Writes tiny tensorflow-datasets sets: three learnable classes of small rectangular images."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from vit_train.data.digits import LocalInfo

CLASS_NAMES = ("red", "green", "blue")
SIZE = (21, 15)


def tiny_image(label: int, rng: np.random.Generator, size: tuple[int, int] = SIZE) -> np.ndarray:
    """(H, W, 3) uint8 noise with a block at a random place in the colour of the label."""
    image = rng.integers(0, 90, (*size, 3))
    top, left = rng.integers(0, size[0] // 2), rng.integers(0, size[1] // 2)
    image[top : top + size[0] // 2, left : left + size[1] // 2, label] += 150
    return image.astype(np.uint8)


def write_tiny_set(
    data_dir: Path,
    name: str = "tiny_rectangles",
    *,
    splits: Mapping[str, int] | None = None,
    seed: int = 0,
    features: Mapping[str, Any] | None = None,
    record: Callable[[str, int, np.random.Generator], dict[str, Any]] | None = None,
) -> Path:
    """Prepare a set as array_record; `open_dataset(f"tfds:{name}", data_dir)` reads it.

    Args:
        splits: how many records each has; by default 47 to train on and 19 to test on.
        features: other features than a (21, 15, 3) "image" and a "label" of 3 classes.
        record: other records, from (split, index, rng); images as encoded bytes.

    Returns:
        The folder of the prepared set.
    """
    if features is None:
        features = {
            "image": tfds.features.Image(shape=(*SIZE, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=CLASS_NAMES),
        }

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        code_path: Any = Path(__file__)

        def _info(self) -> tfds.core.DatasetInfo:
            return LocalInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            sizes = splits or {"train": 47, "test": 19}
            return {split: self._generate_examples(split, size) for split, size in sizes.items()}

        def _generate_examples(self, split: str, size: int) -> Iterator[tuple[int, Any]]:
            rng = np.random.default_rng([seed, *split.encode()])
            for index in range(size):
                yield index, (record or _record)(split, index, rng)

    Tiny.name = name
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        builder = Tiny(data_dir=str(data_dir), file_format="array_record")
        builder.download_and_prepare(download_dir=str(data_dir / ".downloads"))
    return Path(builder.data_dir)


def png(image: np.ndarray) -> bytes:
    """(H, W, 3) or (H, W) uint8, encoded without loss."""
    return _encoded(image, "PNG")


def jpeg(image: np.ndarray) -> bytes:
    """(H, W, 3) or (H, W) uint8, encoded with loss."""
    return _encoded(image, "JPEG")


def _encoded(image: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, format=kind)
    return file.getvalue()


def _record(split: str, index: int, rng: np.random.Generator) -> dict[str, Any]:
    label = index % len(CLASS_NAMES)
    return {"image": png(tiny_image(label, rng)), "label": label}
