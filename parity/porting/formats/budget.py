"""Memory limit of one opened file: a small multiple of its size, counted before memory is used.

A limit for each tensor, text or list bounds nothing: a file can name any number of them, and deflated
zeros or strides of 0 take no bytes in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vit_config.errors import WeightsError
from vit_config.files.held import check_held, most_of

MOST_OBJECTS = 2**29
"""Maximum bytes of Python objects - names, numbers, containers - for a file of any size."""


def folder_budget(folder: Path) -> Budget:
    """Return the budget of a folder whose files are one checkpoint."""
    return budget_of(folder, [each for each in folder.rglob("*") if each.is_file()])


def budget_of(path: Path, files: Iterable[Path]) -> Budget:
    """Return the one budget of all files of a checkpoint, by their bytes on the disk.

    Raises:
        WeightsError: a file is nearly all holes.
    """
    return Budget(path, sum(map(check_held, files)))


class Budget:
    """Counts the memory that the contents of one file use.

    Args:
        size: bytes of the file that are on the disk.
    """

    def __init__(self, path: Path, size: int):
        self._path = path
        self._size = size
        self._most = most_of(size)
        self._objects = 0
        self._values = 0
        self._copies = 0

    def objects(self, nbytes: int) -> None:
        """Count bytes of Python objects before they are created. WeightsError: there are too many."""
        self._objects += nbytes
        if self._objects > min(self._most, MOST_OBJECTS):
            raise self._refusal("objects", min(self._most, MOST_OBJECTS))

    def values(self, nbytes: int) -> None:
        """Count bytes of tensors before they are read. WeightsError: there are too many."""
        self._values += nbytes
        if self._values > self._most:
            raise self._refusal("tensors", self._most)

    def unpacked(self, nbytes: int) -> None:
        """Check the unpacked size of all compressed members. WeightsError: it is too large."""
        if nbytes > self._most:
            raise self._refusal("unpacked members", self._most)

    def copies(self, nbytes: int) -> None:
        """Count bytes of files that are copied as they are. WeightsError: there are too many."""
        self._copies += nbytes
        if self._copies > self._most:
            raise self._refusal("copies", self._most)

    def _refusal(self, what: str, most: int) -> WeightsError:
        return WeightsError(
            f"{self._path}: its {self._size} bytes would make more than {most} of {what}; no checkpoint"
            " does: do not trust it"
        )
