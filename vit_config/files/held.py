"""How much memory a file may take: a small multiple of its bytes on the disk.

A file may have holes: it says any size, takes no place for them, and reads as zeros.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from vit_config.errors import WeightsError
from vit_config.files.foreign import check_ordinary

FLOOR = 2**26
"""Bytes that even the smallest file may use."""
MULTIPLE = 8
"""Multiple of its own bytes that a file may use in addition."""


def most_of(nbytes: int) -> int:
    """Return the bytes that the content of a file with `nbytes` on the disk may use."""
    return FLOOR + MULTIPLE * nbytes


def check_held(path: Path) -> int:
    """Return the bytes of a file that are not holes. WeightsError: nearly all of it is holes, or it is
    no ordinary file."""
    try:
        check_ordinary(path)
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from None
    size, there = path.stat().st_size, stored_bytes(path)
    if size > most_of(there):
        raise WeightsError(
            f"{path}: only {there} of its {size} bytes are on the disk, the others are holes; let the"
            " download end, or do not trust it"
        )
    return there


def check_unpacked(path: Path) -> None:
    """Refuse a zip archive whose members are many times its size. WeightsError, BadZipFile, OSError."""
    there = check_held(path)
    with zipfile.ZipFile(path) as archive:
        total = sum(each.file_size for each in archive.infolist())
    if total > most_of(there):
        raise WeightsError(f"{path}: its members say {total} bytes, more than {most_of(there)}")


def stored_bytes(path: Path) -> int:
    """Return the bytes of a file that are not holes."""
    about = path.stat()
    blocks = getattr(about, "st_blocks", None)  # of 512 bytes; not on Windows
    if blocks is None or 512 * blocks >= about.st_size or not hasattr(os, "SEEK_DATA"):
        return about.st_size
    with path.open("rb") as file:  # fewer blocks may also be compressed ones, or not yet counted
        return _data(file.fileno(), about.st_size)


def _data(file: int, size: int) -> int:
    total = end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError:  # only a hole is left
            break
        end = os.lseek(file, start, os.SEEK_HOLE)
        total += end - start
    return total
