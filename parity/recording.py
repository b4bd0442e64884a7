"""What one run of one model produced, in the order in which it was produced."""

from __future__ import annotations

import shutil
import tempfile
import weakref
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
        self._arrays: dict[Key, np.ndarray | tuple[Path, np.dtype]] = {}
        self._bytes = 0
        self._folder: Path | None = None

    def add(self, key: Key, array: np.ndarray) -> None:
        """Keep one array; a key that is there already is numbered, as of a module called twice."""
        if key in self._arrays:
            calls = sum(k.path == key.path and k.port.startswith(key.port) for k in self._arrays)
            key = key._replace(port=f"{key.port} call {calls + 1}")
        array = np.ascontiguousarray(array)
        self._bytes += array.nbytes
        if self._bytes <= _IN_MEMORY:
            self._arrays[key] = array
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="parity-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{len(self._arrays)}.npy"
        np.save(path, array.view(np.uint8))  # bytes: numpy's file format does not know bfloat16
        self._arrays[key] = path, array.dtype

    def __getitem__(self, key: Key) -> np.ndarray:
        found = self._arrays[key]
        return found if isinstance(found, np.ndarray) else np.load(found[0]).view(found[1])

    def __contains__(self, key: Key) -> bool:
        return key in self._arrays

    def keys(self, level: Level | None = None) -> Iterator[Key]:
        """The keys, in the order they were added; of one level if given."""
        return (key for key in self._arrays if level is None or key.level == level)
