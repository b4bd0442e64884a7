"""Arrays passed from one process to another through a file in memory, where the system has such files.

A pipe passes 64 kB at a time, which for a batch of ImageNet takes longer than many a step. The file has
no name: nothing is left behind, however its processes end, and /dev/shm may be as small as it likes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any


class SharedFile:
    """A file in memory that one process writes and another reads, in turns.

    The file passes to a process as an argument of its start. Linux has such files; elsewhere `write`
    returns the content, to be sent otherwise.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("arrays") if hasattr(os, "memfd_create") else None

    def __getstate__(self) -> dict[str, Any]:
        return {"file": None if self._file is None else reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file = state["file"] and state["file"].detach()

    def write(self, arrays: Sequence[memoryview]) -> Sequence[int | bytes]:
        """Write arrays from the file's beginning on.

        Returns:
            The arguments of `read`: the bytes that each array has, or without a shared file the
            content itself.
        """
        if self._file is None:
            return [bytes(array) for array in arrays]
        place = 0
        for array in arrays:
            left = array
            while left.nbytes:  # Linux writes 2 GiB at most at once
                done = os.pwrite(self._file, left, place)
                left, place = left[done:], place + done
        return [array.nbytes for array in arrays]

    def read(self, written: Sequence[int | bytes]) -> list[bytearray]:
        """Read the arrays that the other process wrote, given the result of its `write`."""
        arrays, place = [], 0
        for each in written:
            if isinstance(each, bytes):
                arrays.append(bytearray(each))
                continue
            assert self._file is not None
            array = bytearray(each)
            left = memoryview(array)
            while left:
                done = os.preadv(self._file, [left], place)
                left, place = left[done:], place + done
            arrays.append(array)
        return arrays

    def close(self) -> None:
        """Close the file; it is gone when both processes have closed it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
