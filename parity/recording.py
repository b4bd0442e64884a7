"""What one run of one model produced, in the order in which it was produced."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

_IN_MEMORY = 256 * 2**20
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


class Recording:
    """Named arrays in order; large ones lie on disk, so that huge models fit."""

    def __init__(self) -> None:
        self._arrays: dict[Key, np.ndarray | Path] = {}
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, key: Key, array: np.ndarray) -> None:
        """Keep one array."""
        self._bytes += array.nbytes
        if self._bytes <= _IN_MEMORY:
            self._arrays[key] = array
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="parity-")
        path = Path(self._folder.name) / f"{len(self._arrays)}.npy"
        np.save(path, array.view(np.uint16) if array.dtype.name == "bfloat16" else array)
        self._arrays[key] = path

    def __getitem__(self, key: Key) -> np.ndarray:
        found = self._arrays[key]
        return np.load(found) if isinstance(found, Path) else found

    def __contains__(self, key: Key) -> bool:
        return key in self._arrays

    def keys(self, level: Level | None = None) -> Iterator[Key]:
        """The keys, in the order they were added; of one level if given."""
        return (key for key in self._arrays if level is None or key.level == level)
