"""Labelled images in a file, and a model's score on them; the same for both twins."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vit_config.errors import DataError, InputError, MissingFileError
from vit_config.files.held import check_unpacked
from vit_config.images.preprocess import WHITE, Preprocess
from vit_config.inputs import check_image
from vit_config.schema import ViTConfig


class LabelledImages(NamedTuple):
    """Raw images, of the size a model takes, with their classes."""

    images: np.ndarray
    """(N, H, W, C) uint8, uint16 or float32, see `Preprocess.pixel_type`."""
    labels: np.ndarray
    """(N,) int32; or (N, classes) int32, 1 for each class of an image that may have several."""


class Score(NamedTuple):
    """A model's score on labelled images."""

    loss: float
    """Mean cross entropy."""
    correct: int
    """Images that are right; of those with several labels, with all of them."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.correct / self.count


def read_labelled_images(path: str | Path) -> LabelledImages:
    """Read an ``.npz`` file with arrays ``images`` and ``labels``.

    Raises:
        MissingFileError: there is no such file.
        DataError: the file is damaged, or has other arrays than these.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give an .npz file of images and labels")
    try:
        check_unpacked(path)
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: not an .npz file with the arrays images and labels ({error})"
        ) from None
    if (
        images.ndim != 4
        or images.dtype.name not in WHITE
        or labels.ndim not in (1, 2)
        or labels.shape[:1] != images.shape[:1]
        or not len(labels)
    ):
        raise DataError(
            f"{path}: images {images.shape} {images.dtype}, labels {labels.shape}; expected (N, H, W, C)"
            " uint8 and (N,) or (N, classes), N at least 1"
        )
    if labels.dtype.kind not in "iu" or np.any(labels.astype(np.int32) != labels):
        raise DataError(
            f"{path}: labels are {labels.dtype} from {labels.min()} to {labels.max()}; expected integers"
            " below 2^31"
        )
    return LabelledImages(images, labels.astype(np.int32))


def check_labelled_images(
    cfg: ViTConfig, preprocess: Preprocess | None, data: LabelledImages
) -> Preprocess:
    """Check that a model can be scored on `data`.

    Raises:
        InputError: there is no head or no preprocessing, an image does not fit, or a label is out
            of range.
    """
    if not cfg.num_classes:
        raise InputError("num_classes = 0: the model has no head, so it has no accuracy")
    if preprocess is None:
        raise InputError("the weights file does not say how images are prepared (no preprocessing)")
    if data.images.dtype != preprocess.pixel_type:
        raise InputError(
            f"images are {data.images.dtype}, the model takes {preprocess.pixel_type}; score it on"
            " images like those that it was trained on"
        )
    check_image(cfg, *data.images.shape[1:])
    several = data.labels.ndim == 2
    if several != preprocess.several_labels:
        says = "several labels" if preprocess.several_labels else "one label"
        raise InputError(
            f"labels have shape {data.labels.shape}, but the model gives an image {says}; score it on"
            " images like those that it was trained on"
        )
    if several and (data.labels.shape[1] != cfg.num_classes or not np.isin(data.labels, (0, 1)).all()):
        raise InputError(
            f"labels have shape {data.labels.shape}; expected 0 or 1 for each of num_classes ="
            f" {cfg.num_classes}"
        )
    if several:
        return preprocess
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < 0 or high >= cfg.num_classes:
        raise InputError(
            f"labels go from {low} to {high}, the model has num_classes = {cfg.num_classes}"
            f" (0 to {cfg.num_classes - 1})"
        )
    return preprocess
