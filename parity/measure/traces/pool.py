"""Pools: a step's small tensors side by side, since files of thousands of tensors are slow."""

from __future__ import annotations

import threading
from mmap import mmap
from typing import NamedTuple, Protocol

import numpy as np

SMALL = 4096
"""Largest size of a tensor, or of its sample, that goes into a pool."""

ROOM_BYTES = 2**22


class TensorPool(Protocol):
    """Numbers of one type, side by side."""

    def taken(self) -> np.ndarray:
        """Return all numbers, (n,); the next step may overwrite them."""
        ...


class Pooled(NamedTuple):
    """A tensor, or its sample, in a pool."""

    pool: TensorPool
    begin: int
    """Index of its first number in the pool."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    spacing: tuple[int, ...] | None = None
    """Spacing of the sample, as in `parity.measure.traces.sample.Sample`."""


class FixedPool:
    """Numbers that arrived together, never to be overwritten."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def taken(self) -> np.ndarray:
        """Return all numbers, (n,)."""
        return self._numbers


def memory(size: int, dtype: np.dtype) -> np.ndarray:
    """Return room for `size` numbers, (size,), outside of the C library's heap.

    A step has thousands of tensors, and each would lie where a large activation was just freed. Any
    block that stays in the heap there leaves no room for the next activation: a process would grow
    by hundreds of MiB a step.
    """
    count = size * dtype.itemsize
    return np.frombuffer(mmap(-1, max(count, 1)), np.uint8)[:count].view(dtype)


class Room:
    """Memory that numbers of one type are copied to, reused in each step; used from any thread."""

    def __init__(self, dtype: np.dtype) -> None:
        self._numbers = memory(ROOM_BYTES // dtype.itemsize, dtype)
        self._end = 0
        self._lock = threading.Lock()

    def put(self, array: np.ndarray) -> int | None:
        """Copy an array; return the index of its first number, or None where no room is left."""
        with self._lock:
            begin, end = self._end, self._end + array.size
            if end > self._numbers.size:
                return None
            self._end = end
        self._numbers[begin:end].reshape(array.shape)[...] = array
        return begin

    def taken(self) -> np.ndarray:
        """Return all numbers copied since the room was empty, (n,)."""
        return self._numbers[: self._end]

    def empty(self) -> None:
        """Mark the room as empty."""
        self._end = 0


class Rooms:
    """Rooms for all types, as many as a step needs."""

    def __init__(self) -> None:
        self._rooms: dict[np.dtype, list[Room]] = {}

    def put(self, array: np.ndarray) -> tuple[Room, int]:
        """Copy a small array; return its room, and the index of its first number there."""
        rooms = self._rooms.setdefault(array.dtype, [])
        for room in rooms:
            begin = room.put(array)
            if begin is not None:
                return room, begin
        rooms.append(Room(array.dtype))
        return self.put(array)

    def empty(self) -> None:
        """Mark all rooms as empty, once their numbers are written."""
        for rooms in self._rooms.values():
            for room in rooms:
                room.empty()
