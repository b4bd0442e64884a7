"""Small tensors of one step, side by side: files of thousands of tensors are slow."""

from __future__ import annotations

import threading
from mmap import mmap
from typing import NamedTuple, Protocol

import numpy as np

SMALL = 4096
"""Numbers of a tensor, or of its sample, that goes into a pool."""

ROOM_BYTES = 2**22


class Pool(Protocol):
    """Numbers of one type."""

    def taken(self) -> np.ndarray:
        """All of them, (n,); in the next step others may lie there."""
        ...


class Part(NamedTuple):
    """A tensor, or its sample, in a pool."""

    pool: Pool
    begin: int
    """The place of its first number."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    spacing: tuple[int, ...] | None = None
    """As `parity.measure.traces.sample.Sample` has it."""


class Flat:
    """Numbers that came together, never to be written to again."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def taken(self) -> np.ndarray:
        """All of them, (n,)."""
        return self._numbers


def memory(size: int, dtype: np.dtype) -> np.ndarray:
    """Room for `size` numbers, (size,), outside of the C library's heap.

    There are thousands of tensors in a step, and each is where a large activation was just freed. Any
    block of the heap that stays there leaves it no room for the next activation: a process would grow by
    hundreds of MiB a step.
    """
    count = size * dtype.itemsize
    return np.frombuffer(mmap(-1, max(count, 1)), np.uint8)[:count].view(dtype)


class Room:
    """Memory into which numbers of one type are copied, step by step; used from any thread."""

    def __init__(self, dtype: np.dtype) -> None:
        self._numbers = memory(ROOM_BYTES // dtype.itemsize, dtype)
        self._end = 0
        self._lock = threading.Lock()

    def put(self, array: np.ndarray) -> int | None:
        """Copy an array; the place of its first number, or None where no room is left."""
        with self._lock:
            begin, end = self._end, self._end + array.size
            if end > self._numbers.size:
                return None
            self._end = end
        self._numbers[begin:end].reshape(array.shape)[...] = array
        return begin

    def taken(self) -> np.ndarray:
        """What was copied since it was empty, (n,)."""
        return self._numbers[: self._end]

    def empty(self) -> None:
        """Begin anew."""
        self._end = 0


class Rooms:
    """One after the other, of all types, as many as a step needs."""

    def __init__(self) -> None:
        self._rooms: dict[np.dtype, list[Room]] = {}

    def put(self, array: np.ndarray) -> tuple[Room, int]:
        """Copy a small array: where it is, and the place of its first number."""
        rooms = self._rooms.setdefault(array.dtype, [])
        for room in rooms:
            begin = room.put(array)
            if begin is not None:
                return room, begin
        rooms.append(Room(array.dtype))
        return self.put(array)

    def empty(self) -> None:
        """Begin anew: what was copied is written."""
        for rooms in self._rooms.values():
            for room in rooms:
                room.empty()
