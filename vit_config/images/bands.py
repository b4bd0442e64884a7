"""Images of any number of bands and up to 32 bits: NumPy's arrays and TIFF files, as they are stored."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from vit_config.errors import InputError, first_line

TYPES = {"uint8": "uint8", "uint16": "uint16"} | dict.fromkeys(
    ("int8", "int16", "float16", "float32", "float64"), "float32"
)
"""Types in files, and the `Preprocess.pixel_type` that they become: exactly, but for float64."""
NPY = b"\x93NUMPY"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ALPHA = (1, 2)
"""TIFF's extra samples that are transparency."""
GREY, RGB = (0, 1), 2
"""TIFF's photometric interpretations of samples that are no code for colours."""
MOST_BYTES = 2**27
"""Bytes of values that any file may have; `BYTES_A_BYTE` for each byte of a larger file."""
BYTES_A_BYTE = 16


class BandsError(InputError):
    """Damage to a file with bands, or values that are none of an image."""


def is_stored(head: bytes) -> bool:
    """Return whether a file begins as one that may hold bands."""
    return head.startswith((NPY, *TIFF))


def read_bands(encoded: bytes) -> np.ndarray | None:
    """Read a NumPy array, or a TIFF file that is more than a picture of 8 bits.

    Returns:
        (H, W, bands) of one of the types of `TYPES`; None for a picture, which PIL reads.

    Raises:
        BandsError: the file is damaged, or has values or axes that no image has.
    """
    try:
        pixels = _array(encoded) if encoded.startswith(NPY) else _tiff(encoded)
    except InputError:
        raise
    except Exception as error:  # each library has errors of its own for damage
        raise BandsError(first_line(error)) from None
    if pixels is None:
        return None
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or not pixels.size:
        raise BandsError(f"values of shape {pixels.shape}; expected (H, W) or (H, W, bands)")
    if pixels.dtype.name not in TYPES:
        raise BandsError(f"values of type {pixels.dtype}; expected {', '.join(TYPES)}")
    pixels = np.ascontiguousarray(pixels, dtype=TYPES[pixels.dtype.name])
    if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
        raise BandsError("a value is not finite; replace what is missing by a number")
    return pixels


def _array(encoded: bytes) -> np.ndarray:
    file = io.BytesIO(encoded)
    version = np.lib.format.read_magic(file)
    read: Any = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject or dtype.names:
        raise BandsError(f"an array of {dtype}; expected numbers")
    values = encoded[file.tell() :]
    if len(values) != math.prod(shape) * dtype.itemsize:
        raise BandsError(f"{len(values)} bytes of values; shape {shape} of {dtype} takes another number")
    if len(shape) == 3 and 2 * shape[0] < min(shape[1:]):
        raise BandsError(f"values of shape {shape}, expected (H, W, bands): move the bands last")
    flat = np.frombuffer(values, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C").astype(dtype.newbyteorder("="))


def _tiff(encoded: bytes) -> np.ndarray | None:
    try:
        import tifffile
    except ImportError:
        return None  # PIL may be able to read it; what it cannot, `decode` says
    with tifffile.TiffFile(io.BytesIO(encoded)) as file:
        series = file.series[0]
        page: Any = series.keyframe
        if _is_picture(page, series.dtype, len(series.pages)):
            return None
        taken, most = series.size * series.dtype.itemsize, max(MOST_BYTES, BYTES_A_BYTE * len(encoded))
        if taken > most:
            raise BandsError(f"{taken} bytes of values in {len(encoded)}; at most {most} are read")
        axes = series.axes
        others = [axis for axis in range(len(axes)) if axes[axis] not in "YX"]
        if "Y" not in axes or "X" not in axes or len(others) > 1:
            raise BandsError(f"axes {axes}; expected rows, columns and one axis of bands")
        order = [axes.index("Y"), axes.index("X"), *others]
        return series.asarray().transpose(order)


def _is_picture(page: Any, dtype: Any, pages: int) -> bool:
    """Return whether a page is what PIL reads as it is meant: 8 bits, grey, RGB, or coded colours."""
    if page.bitspersample != 8 or dtype != np.uint8:
        return page.bitspersample < 8
    if page.photometric not in (*GREY, RGB):
        return True
    usual = page.samplesperpixel == (1 if page.photometric in GREY else 3)
    alpha = len(page.extrasamples) == 1 and page.extrasamples[0] in ALPHA
    return pages == 1 and (usual or alpha)
