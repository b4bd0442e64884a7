"""What one run of one model produced, in the order in which it was produced."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

_IN_MEMORY = 384 * 2**20
"""Bytes that a recording keeps in memory; what comes after goes to a temporary folder."""

Level = Literal["parameters", "modules", "output", "loss", "gradients"]
LEVELS: tuple[Level, ...] = ("parameters", "modules", "output", "loss", "gradients")


class Key(NamedTuple):
    """The name of one recorded tensor."""

    level: Level
    path: str
    """Module path, output field or parameter name."""
    port: str = ""
    """``in`` or ``out`` of a module, with ``[i]`` for one of several."""

    def __str__(self) -> str:
        return f"{self.path or '(model)'} {self.port}".strip()


class _Entry(NamedTuple):
    """An array, or the file it lies in, and its type."""

    where: np.ndarray | Path
    dtype: np.dtype


class Recording:
    """Named arrays in order; large ones lie on disk, so that huge models fit."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._recent: deque[tuple[np.ndarray, _Entry]] = deque(maxlen=4)
        self._bytes = 0
        self._folder: Path | None = None

    def add(self, key: Key, array: np.ndarray) -> None:
        """Keep one array, once: what one module returned is what the next one is given.

        A key that is there already is numbered, as of a module called twice.
        """
        if key in self._entries:
            calls = sum(k.path == key.path and k.port.startswith(key.port) for k in self._entries)
            key = key._replace(port=f"{key.port} call {calls + 1}")
        known = next((entry for other, entry in self._recent if other is array), None)
        self._entries[key] = known or self._keep(array)
        self._recent.append((array, self._entries[key]))

    def _keep(self, array: np.ndarray) -> _Entry:
        array = np.ascontiguousarray(array)
        self._bytes += array.nbytes
        if self._bytes <= _IN_MEMORY:
            return _Entry(array, array.dtype)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="parity-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{len(self._entries)}.npy"
        np.save(path, array.view(np.uint8))  # bytes: numpy's file format does not know bfloat16
        return _Entry(path, array.dtype)

    def __getitem__(self, key: Key) -> np.ndarray:
        found, dtype = self._entries[key]
        return found if isinstance(found, np.ndarray) else np.load(found).view(dtype)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def keys(self, level: Level | None = None) -> Iterator[Key]:
        """The keys, in the order they were added; of one level if given."""
        return (key for key in self._entries if level is None or key.level == level)
