"""Leaves of two programs in one memory: weights of the second that the first holds, in any layout."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import permutations

import numpy as np

from parity.verifier.programs.program import Program

SMALL = 1 << 16
"""Numbers below which sharing an array saves nothing."""

_Key = tuple[int, float, float]


class _Known:
    """The large leaves of a program, by what does not depend on the order of their axes."""

    def __init__(self, program: Program) -> None:
        self._arrays: dict[_Key, list[np.ndarray]] = {}
        for op in program.operations:
            value = program.cache.get(op.index)
            if op.run is None and isinstance(value, np.ndarray) and _is_large(value):
                self._arrays.setdefault(_key(value), []).append(value)

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return a view of an array that is known and holds the same numbers, else the array itself."""
        for known in self._arrays.get(_key(array), ()) if _is_large(array) else ():
            for axes in permutations(range(known.ndim)):
                view = known.transpose(axes)
                if view.shape == array.shape and np.array_equal(view, array):
                    return view
        return array


_known: ContextVar[_Known | None] = ContextVar("known", default=None)


@contextmanager
def sharing(program: Program | None) -> Iterator[None]:
    """Let what is recorded while entered lie in a program's memory where it can."""
    token = _known.set(None if program is None else _Known(program))
    try:
        yield
    finally:
        _known.reset(token)


def shared(array: np.ndarray) -> np.ndarray:
    """Return the view of another program's leaf that is an array, or the array."""
    known = _known.get()
    return array if known is None else known.of(array)


def return_freed_memory() -> None:
    """Give freed memory back to the operating system, and let large arrays be given back as soon as they
    are freed: glibc keeps what lies between blocks in use, and begins to keep large blocks, in pieces,
    as soon as one was freed."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        libc.malloc_trim(0)


_MMAP_THRESHOLD = -3
"""Number of glibc's option (malloc.h)."""
_LARGE_BLOCK = 1 << 22
"""Bytes of a block from which it has pages of its own."""


def _is_large(value: np.ndarray) -> bool:
    return value.dtype == np.float64 and value.ndim <= 4 and value.size >= SMALL


def _key(array: np.ndarray) -> _Key:
    return array.size, float(array.min()), float(array.max())
