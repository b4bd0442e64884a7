"""Streaming tensors into the files of a trace, in a thread beside the recorded program."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from xxhash import xxh3_128_digest

from parity.measure.traces.pool import SMALL, Pooled, Rooms, TensorPool, memory
from parity.measure.traces.sample import Sample, sample
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_header import TYPES
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import array_bytes
from vit_config.files.stored import Stored, type_name

FILE_BYTES = 2**26
"""Bytes of tensors at which a file is written."""

WAITING_FILES = 2
"""Files that may wait for the writing thread; beyond these, the program waits."""

_TYPES = frozenset(TYPES.values())


@dataclass
class FileTensor:
    """A tensor, or its sample, that lies in a file of a trace by itself."""

    shape: tuple[int, ...]
    dtype: str
    file: str
    tensor: str
    spacing: tuple[int, ...] | None = None


class Stream:
    """Writer of tensors in a thread of its own, equal ones once; used from any thread."""

    def __init__(self, folder: Path, keep: int | None) -> None:
        """Start with an empty folder.

        Args:
            keep: largest number of elements kept of one tensor. None keeps everything.
        """
        self.keep = keep
        self._folder = folder
        self._known: dict[tuple[object, ...], FileTensor] = {}
        self._lock = threading.Lock()
        self._rooms = Rooms()
        self._tensors: dict[str, np.ndarray] = {}
        """Tensors of the file that is written next."""
        self._bytes = 0
        self._writing: list[Future[None]] = []
        """One write for each file, in order."""
        self._thread = ThreadPoolExecutor(1, "trace")

    def store(self, value: np.ndarray | Sample) -> FileTensor | Pooled:
        """Copy the kept elements of a tensor, and have them written; of equal large ones only one.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        part = value if isinstance(value, Sample) else sample(np.asarray(value), self.keep)
        array = np.asarray(part.values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        _check(array.dtype)
        if array.size <= SMALL:
            return Pooled(*self._rooms.put(array), part.shape, part.spacing)
        # one module's output is the next one's input, and so are their gradients
        known = (array.dtype, part.shape, part.spacing, xxh3_128_digest(array_bytes(array)))
        with self._lock:
            if known not in self._known:
                name = f"t{len(self._tensors)}"
                self._known[known] = self._put(name, array, part.shape, part.spacing)
            return self._known[known]

    def end_step(self) -> None:
        """Reuse the memory of small tensors, now written; raise the writing thread's error, if any."""
        self._rooms.empty()
        self.check()

    def pooled(self, name: str, pool: TensorPool) -> FileTensor:
        """Copy the numbers in a pool, and have them written under a name that no other has.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        numbers = pool.taken()
        with self._lock:
            return self._put(name, numbers, numbers.shape, None)

    def _put(
        self, name: str, array: np.ndarray, shape: tuple[int, ...], spacing: tuple[int, ...] | None
    ) -> FileTensor:
        _check(array.dtype)
        place = FileTensor(shape, type_name(array.dtype), self._file, name, spacing)
        copied = memory(array.size, array.dtype).reshape(array.shape)
        copied[...] = array
        self._tensors[name] = copied
        self._bytes += array.nbytes
        if self._bytes >= FILE_BYTES:
            self._write()
            wait(self._writing[:-WAITING_FILES])
        return place

    def check(self) -> None:
        """Raise the error of the writing thread, if there was one."""
        for each in self._writing:
            if each.done():
                each.result()

    def close(self) -> None:
        """Wait until everything is written; raise the error of the writing thread, if there was one."""
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
