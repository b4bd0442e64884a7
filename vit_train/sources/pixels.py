"""The pixels of a set of files, by its first one: pictures, or images of bands as they are stored."""

from __future__ import annotations

from typing import NamedTuple

from vit_config.errors import DataError
from vit_config.images.bands import BandsError, is_stored, read_bands
from vit_config.images.pixels import LONGEST_FILE
from vit_config.images.preprocess import PixelType
from vit_train.data.records import ImageShape
from vit_train.sources.place import Place, read_all

STORED = (".npy", ".tif", ".tiff")
"""Endings of files that may hold bands, in small letters."""


class SetOfFiles(NamedTuple):
    """Properties that the images of a set have in common."""

    image_shape: ImageShape = (None, None, 3)
    pixel_type: PixelType = "uint8"
    of_files: bool = True
    """Whether they are pictures, which are read as RGB, or in as many channels as a model has."""


def set_of(spec: str, first: Place) -> SetOfFiles:
    """Return what images of a set are like, going by its first file.

    Raises:
        DataError: it cannot be read.
    """
    if not first.name.lower().endswith(STORED):
        return SetOfFiles()
    try:
        encoded = read_all(first, LONGEST_FILE)
        pixels = read_bands(encoded) if is_stored(encoded[:8]) else None
    except (OSError, BandsError) as error:
        raise DataError(f"{spec}: {first} cannot be read ({error}); replace it") from None
    if pixels is None:
        return SetOfFiles()
    kinds: dict[str, PixelType] = {"uint8": "uint8", "uint16": "uint16", "float32": "float32"}
    return SetOfFiles((None, None, pixels.shape[2]), kinds[pixels.dtype.name], of_files=False)
