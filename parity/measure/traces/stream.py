"""Tensors on their way into the files of a trace, written beside the program that makes them."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_128_digest

from parity.measure.traces.sample import Sample, sample
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_header import TYPES
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import array_bytes
from vit_config.files.stored import Stored, type_name

FILE_BYTES = 2**26
"""A file is written when its tensors take up so much."""

ROOM_BYTES = 2**23
"""Of memory that small tensors share."""

ALIGNMENT = 64

WAITING_FILES = 2
"""Files that may wait for the writing thread; what makes more of them waits with them."""

_TYPES = frozenset(TYPES.values())


@dataclass
class Kept:
    """Where a tensor lies in a trace."""

    shape: tuple[int, ...]
    dtype: str
    file: str
    tensor: str
    spacing: tuple[int, ...] | None = None


class _Copy(NamedTuple):
    """A tensor in memory that it may share with others.

    There are thousands in a step, and each is where a large activation was just freed. Any block of the
    C library's that stays there, be it the shape of an array, leaves it no room for the next activation:
    a process would grow by hundreds of MiB a step.
    """

    room: np.ndarray
    begin: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def array(self) -> np.ndarray:
        """The tensor."""
        end = self.begin + math.prod(self.shape) * self.dtype.itemsize
        return self.room[self.begin : end].view(self.dtype).reshape(self.shape)


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
        self._tensors: dict[str, _Copy] = {}
        """Of the file that is written next."""
        self._bytes = 0
        self._room, self._begin = np.empty(0, np.uint8), 0
        """Where the next small tensor goes."""
        self._writing: list[Future[None]] = []
        """Each file, in order."""
        self._thread = ThreadPoolExecutor(1, "trace")

    def store(self, value: np.ndarray | Sample) -> Kept:
        """Copy what is to be kept of a tensor, unless an equal one was stored before, and have it
        written.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        kept_of = value if isinstance(value, Sample) else sample(np.asarray(value), self.keep)
        array = np.asarray(kept_of.values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        kind = type_name(array.dtype)
        if kind not in _TYPES:
            raise ConfigError(f"a trace cannot hold the type {array.dtype}; convert the array first")
        # what one module returned is what the next one is given, and so are their gradients
        known = (kind, kept_of.shape, kept_of.spacing, xxh3_128_digest(array_bytes(array)))
        with self._lock:
            if known not in self._known:
                kept = Kept(kept_of.shape, kind, self._file, str(len(self._tensors)), kept_of.spacing)
                self._known[known] = kept
                self._tensors[kept.tensor] = self._copied(array)
                self._bytes += array.nbytes
                if self._bytes >= FILE_BYTES:
                    self._write()
                    wait(self._writing[:-WAITING_FILES])
            return self._known[known]

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

    def _copied(self, array: np.ndarray) -> _Copy:
        if array.nbytes > ROOM_BYTES // 8:
            alone = np.array(array, order="C").reshape(-1).view(np.uint8)
            return _Copy(alone, 0, array.dtype, array.shape)
        if self._begin + array.nbytes > self._room.size:
            self._room, self._begin = np.frombuffer(mmap(-1, ROOM_BYTES), np.uint8), 0
        copied = _Copy(self._room, self._begin, array.dtype, array.shape)
        copied.array[...] = array
        self._begin += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return copied

    @property
    def _file(self) -> str:
        return f"{len(self._writing):05}.safetensors"

    def _write(self) -> None:
        job = self._thread.submit(_write_file, self._folder / self._file, self._tensors)
        self._writing.append(job)
        self._tensors, self._bytes = {}, 0


def _write_file(path: Path, tensors: dict[str, _Copy]) -> None:
    with atomic_file(path) as file:
        stored = {name: Stored.of(copied.array) for name, copied in tensors.items()}
        write_stream(file, stored, {}, sealed=True)
