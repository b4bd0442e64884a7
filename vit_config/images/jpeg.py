"""JPEG files decoded by simplejpeg where it is installed: libjpeg-turbo, without a copy through PIL.

The pixels are PIL's, bit for bit, for both call the same library with the same settings. Unusual
files - another colour space, a damaged file - are left to PIL, whose judgement counts.
"""

from __future__ import annotations

import numpy as np

from vit_config.base import MOST_PIXELS

try:
    import simplejpeg  # pyright: ignore[reportMissingImports]
except ImportError:
    simplejpeg = None

SCALES = (8, 4, 2)
"""libjpeg's divisors of both sides, for which it leaves out high frequencies of each 8x8 block."""


def decode_jpeg(encoded: bytes, channels: int, least: int | None = None) -> np.ndarray | None:
    """Decode an ordinary JPEG file.

    Args:
        channels: 3, or 1 for a grey file.
        least: the smaller side that is enough, in pixels; see `scale_for`.

    Returns:
        (H, W, channels) uint8, read-only; None if it is for PIL to decode.
    """
    if simplejpeg is None or encoded[:2] != b"\xff\xd8" or channels not in (1, 3):
        return None
    try:
        *size, space, _ = simplejpeg.decode_jpeg_header(encoded)
        height, width = map(int, size)
        if (space != "Gray" and (space != "YCbCr" or channels == 1)) or height * width > MOST_PIXELS:
            return None
        scale = scale_for((height, width), least)
        pixels = simplejpeg.decode_jpeg(
            encoded,
            "RGB" if channels == 3 else "GRAY",
            min_height=-(-height // scale),
            min_width=-(-width // scale),
            min_factor=scale,
        )
    except ValueError:  # raised for libjpeg's warnings, too
        return None
    pixels.setflags(write=False)
    return pixels


def scale_for(size: tuple[int, int], least: int | None) -> int:
    """Return the divisor of both sides of an image that leaves the smaller one at least `least`.

    Args:
        size: (h, w) in pixels.
        least: in pixels; None for the whole size.

    Returns:
        1, 2, 4 or 8.
    """
    if least is None:
        return 1
    return next((scale for scale in SCALES if min(size) >= scale * least), 1)
