"""Scikit-learn's handwritten digits as a tensorflow-datasets set, prepared here in a second."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from vit_config.errors import DataError

VERSION = "1.0.0"
NUM_TRAIN = 898
"""The first images are for training and the other 899 for testing, unshuffled: the split of
scikit-learn's own example of recognising them."""

_preparing = threading.Lock()


class LocalInfo(tfds.core.DatasetInfo):
    """tfds's description of a set that is made here and never looked for in tfds's online bucket."""

    def initialize_from_bucket(self) -> None:
        """Do nothing; tfds would leave an empty temporary folder behind each time."""


class Digits(tfds.core.GeneratorBasedBuilder):
    """1797 digits of 8 x 8 pixels, (8, 8, 1) uint8: scikit-learn's values 0..16 times 15."""

    VERSION = tfds.core.Version(VERSION)
    code_path: Any = Path(__file__)  # tfds would look for it by a package that it does not require

    def _info(self) -> tfds.core.DatasetInfo:
        return LocalInfo(
            builder=self,
            description="Handwritten digits of the UCI repository, as scikit-learn ships them.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=list("0123456789")),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://scikit-learn.org/stable/datasets/toy_dataset.html",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        from sklearn.datasets import load_digits  # takes a second, in the first run only

        del dl_manager  # nothing to download
        digits: Any = load_digits()
        images = (digits.images * 15).astype(np.uint8)
        return {
            "train": self._generate_examples(images, digits.target, range(NUM_TRAIN)),
            "test": self._generate_examples(images, digits.target, range(NUM_TRAIN, len(images))),
        }

    def _generate_examples(
        self, images: np.ndarray, labels: np.ndarray, indices: range
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in indices:
            yield index, {"image": _png(images[index]), "label": int(labels[index])}


def prepare_digits(data_dir: Path) -> Path:
    """Prepare the digits in `data_dir`, if they are not there; several processes may do so at once.

    Returns:
        The folder of the prepared set.

    Raises:
        DataError: `data_dir` cannot be written.
    """
    final = data_dir / "digits" / VERSION
    with _preparing:  # redirecting the terminal is not safe between threads
        if final.is_dir():
            return final
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with _private_folder(data_dir) as private, _silence():
                Digits(data_dir=str(private), file_format="array_record").download_and_prepare()
                _publish(private / "digits" / VERSION, final)
        except OSError as error:
            raise DataError(
                f"digits: cannot be prepared in {data_dir} ({error}); name a writable folder"
            ) from None
    return final


def _publish(prepared: Path, final: Path) -> None:
    """Rename a complete set into place; if another process was faster, keep its equal one."""
    try:
        os.rename(prepared, final)
    except OSError:
        if not final.is_dir():
            raise


@contextlib.contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Make a folder on the same disk, so that a rename is atomic; remove it with its rest at the end."""
    folder = Path(tempfile.mkdtemp(prefix=".preparing-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep tfds's progress bars and notices off the terminal."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def _png(image: np.ndarray) -> bytes:
    """Encode (H, W) uint8 without compressing: the bytes do not depend on the version of zlib."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG", compress_level=0)
    return file.getvalue()
