"""Tensors on their way into the files of a trace, written beside the program that makes them."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from xxhash import xxh3_128_digest

from parity.measure.traces.pool import SMALL, Part, Pool, Rooms, memory
from parity.measure.traces.sample import Sample, sample
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_header import TYPES
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import array_bytes
from vit_config.files.stored import Stored, type_name

FILE_BYTES = 2**26
"""A file is written when its tensors take up so much."""

WAITING_FILES = 2
"""Files that may wait for the writing thread; what makes more of them waits with them."""

_TYPES = frozenset(TYPES.values())


@dataclass
class Kept:
    """Where a tensor lies in a trace, by itself."""

    shape: tuple[int, ...]
    dtype: str
    file: str
    tensor: str
    spacing: tuple[int, ...] | None = None


class Stream:
    """Writes tensors in a thread of its own, equal ones once; used from any thread."""

    def __init__(self, folder: Path, keep: int | None) -> None:
        """Start with an empty folder.

        Args:
            keep: numbers of one tensor that are kept, at most. None keeps everything.
        """
        self.keep = keep
        self._folder = folder
        self._known: dict[tuple[object, ...], Kept] = {}
        self._lock = threading.Lock()
        self._rooms = Rooms()
        self._tensors: dict[str, np.ndarray] = {}
        """Of the file that is written next."""
        self._bytes = 0
        self._writing: list[Future[None]] = []
        """Each file, in order."""
        self._thread = ThreadPoolExecutor(1, "trace")

    def store(self, value: np.ndarray | Sample) -> Kept | Part:
        """Copy what is to be kept of a tensor, and have it written: of large ones that are equal one.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        kept_of = value if isinstance(value, Sample) else sample(np.asarray(value), self.keep)
        array = np.asarray(kept_of.values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        _check(array.dtype)
        if array.size <= SMALL:
            return Part(*self._rooms.put(array), kept_of.shape, kept_of.spacing)
        # what one module returned is what the next one is given, and so are their gradients
        known = (array.dtype, kept_of.shape, kept_of.spacing, xxh3_128_digest(array_bytes(array)))
        with self._lock:
            if known not in self._known:
                name = f"t{len(self._tensors)}"
                self._known[known] = self._put(name, array, kept_of.shape, kept_of.spacing)
            return self._known[known]

    def end_step(self) -> None:
        """Small tensors are written now; raises what went wrong in the writing thread, if anything."""
        self._rooms.empty()
        self.check()

    def pooled(self, name: str, pool: Pool) -> Kept:
        """Copy what lies in a pool, and have it written under a name that no other has.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        numbers = pool.taken()
        with self._lock:
            return self._put(name, numbers, numbers.shape, None)

    def _put(
        self, name: str, array: np.ndarray, shape: tuple[int, ...], spacing: tuple[int, ...] | None
    ) -> Kept:
        _check(array.dtype)
        kept = Kept(shape, type_name(array.dtype), self._file, name, spacing)
        copied = memory(array.size, array.dtype).reshape(array.shape)
        copied[...] = array
        self._tensors[name] = copied
        self._bytes += array.nbytes
        if self._bytes >= FILE_BYTES:
            self._write()
            wait(self._writing[:-WAITING_FILES])
        return kept

    def check(self) -> None:
        """Raise what went wrong in the writing thread, if anything did."""
        for each in self._writing:
            if each.done():
                each.result()

    def close(self) -> None:
        """Wait until everything is written; raises what went wrong."""
        if self._tensors:
            self._write()
        self._thread.shutdown()
        self.check()

    @property
    def _file(self) -> str:
        return f"{len(self._writing):05}.safetensors"

    def _write(self) -> None:
        job = self._thread.submit(_write_file, self._folder / self._file, self._tensors)
        self._writing.append(job)
        self._tensors, self._bytes = {}, 0


@cache
def _check(dtype: np.dtype) -> None:
    if type_name(dtype) not in _TYPES:
        raise ConfigError(f"a trace cannot hold the type {dtype}; convert the array first")


def _write_file(path: Path, tensors: dict[str, np.ndarray]) -> None:
    with atomic_file(path) as file:
        stored = {name: Stored.of(array) for name, array in tensors.items()}
        write_stream(file, stored, {}, sealed=True)
