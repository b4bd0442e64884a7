"""What one opened file may make of itself: a small multiple of its size, counted beforehand.

A limit for each tensor, text or list bounds nothing: a file names as many of them as it likes, and
deflated zeros or strides of 0 need no bytes for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vit_config.errors import WeightsError

FLOOR = 2**26
"""Bytes that even the smallest file may make."""
MULTIPLE = 8
"""How many times its own bytes a file may make beyond that."""
MOST_OBJECTS = 2**29
"""Bytes of Python's objects - names, numbers, containers - that a file of any size may make."""


def folder_budget(folder: Path) -> Budget:
    """The budget of a folder whose files are one checkpoint: of the bytes that they have on the disk."""
    found = [each.stat() for each in folder.rglob("*") if each.is_file()]
    return Budget(folder, sum(min(each.st_size, _on_disk(each)) for each in found))


def _on_disk(about: Any) -> int:
    blocks = getattr(about, "st_blocks", None)  # of 512 bytes; not on Windows
    return about.st_size if blocks is None else 512 * blocks


class Budget:
    """Counts what is made of one file.

    Args:
        size: of the file in bytes.
    """

    def __init__(self, path: Path, size: int):
        self._path = path
        self._size = size
        self._most = FLOOR + MULTIPLE * size
        self._objects = 0
        self._values = 0

    def objects(self, nbytes: int) -> None:
        """So many bytes of Python's objects are about to be made. WeightsError: there are too many."""
        self._objects += nbytes
        if self._objects > min(self._most, MOST_OBJECTS):
            raise self._refusal("objects", min(self._most, MOST_OBJECTS))

    def values(self, nbytes: int) -> None:
        """So many bytes of tensors may be read and written. WeightsError: there are too many."""
        self._values += nbytes
        if self._values > self._most:
            raise self._refusal("tensors", self._most)

    def unpacked(self, nbytes: int) -> None:
        """All that is compressed in the file takes so many bytes. WeightsError: too many."""
        if nbytes > self._most:
            raise self._refusal("unpacked members", self._most)

    def _refusal(self, what: str, most: int) -> WeightsError:
        return WeightsError(
            f"{self._path}: its {self._size} bytes would make more than {most} of {what}; no checkpoint"
            " does: do not trust it"
        )
