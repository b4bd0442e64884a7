"""The orientation that a camera notes in a photo (EXIF, tag 0x0112) in place of turning its pixels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

TAG = 0x0112
HEAD = 2**17
"""Bytes of a file in which its EXIF block begins: a JPEG has it in one of its first segments."""
BLOCKS = {
    b"\xff\xd8": (b"Exif\0\0", b"tiff:Orientation"), b"\x89P": (b"eXIf", b"Raw profile type exif"),
    b"RI": (b"EXIF", b"tiff:Orientation"),
}  # fmt: skip
"""Marks of an orientation, in an EXIF block or in XMP, by the first bytes of a JPEG, PNG or WebP."""


def is_noted(encoded: bytes) -> bool:
    """Return whether a file may note an orientation. PIL turns a TIFF itself."""
    where = None if encoded[:2] == b"RI" else HEAD  # WebP has it behind the pixels
    return any(encoded.find(each, 0, where) >= 0 for each in BLOCKS.get(encoded[:2], ()))


def is_turned(encoded: bytes) -> bool:
    """Return whether a file's camera noted that its pixels are turned or mirrored."""
    if not is_noted(encoded):
        return False
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded), formats=["JPEG", "PNG", "WEBP"]) as image:
            return image.getexif().get(TAG, 1) in range(2, 9)
    except Exception:  # damage is told by whoever reads the pixels
        return False


def is_turned_file(path: str | Path) -> bool:
    """Return `is_turned` of a file, of which the head alone is read."""
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
        return is_turned(head + file.read() if head[:2] == b"RI" else head)


def upright(image: Image.Image) -> Image.Image:
    """Return an image turned as its camera noted; a damaged note is none."""
    from PIL import ImageOps

    try:
        turned = image.getexif().get(TAG, 1) in range(2, 9)
    except Exception:  # PIL raises what its parser of TIFF raises
        return image
    return ImageOps.exif_transpose(image) if turned else image
