"""Tensors on their way into the files of a trace, written beside the program that makes them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.measure.traces.sample import Sample, sample
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_header import TYPES
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import array_bytes, hasher_of
from vit_config.files.stored import Stored, type_name

FILE_BYTES = 2**26
"""A file is written when its tensors take up so much."""

WAITING_BYTES = 2**27
"""Tensors that may wait for the writing thread; what makes more of them waits with them."""

_TYPES = frozenset(TYPES.values())


@dataclass
class Kept:
    """Where a tensor lies in a trace; known as soon as it is written."""

    shape: tuple[int, ...]
    dtype: str
    file: str = ""
    tensor: str = ""
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
        self._known: dict[str, Kept] = {}
        self._waiting: deque[tuple[Kept, np.ndarray]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._pending: dict[str, Stored] = {}
        self._pending_bytes = 0
        self._files = 0

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
        if type_name(array.dtype) not in _TYPES:
            raise ConfigError(f"a trace cannot hold the type {array.dtype}; convert the array first")
        # what one module returned is what the next one is given, and so are their gradients
        hasher = hasher_of((*kept_of.shape, *(kept_of.spacing or ())), array.dtype)
        hasher.update(array_bytes(array))
        digest = hasher.hexdigest()
        with self._changed:
            if digest in self._known:
                return self._known[digest]
            kept = Kept(kept_of.shape, type_name(array.dtype), spacing=kept_of.spacing)
            self._known[digest] = kept
            while self._waiting_bytes > WAITING_BYTES and self._error is None:
                self._changed.wait()
            if self._error is None:  # else nothing will be written any more
                self._waiting.append((kept, np.array(array, order="C")))
                self._waiting_bytes += array.nbytes
                self._start()
                self._changed.notify_all()
        return kept

    def check(self) -> None:
        """Raise what went wrong in the writing thread, if anything did."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Wait until everything is written; raises what went wrong."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.check()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                kept, array = job
                self._put(kept, array)
                with self._changed:
                    self._waiting_bytes -= array.nbytes
                    self._changed.notify_all()
                del job, array
            self._flush()
        except BaseException as error:  # raised again where the recording can be ended
            with self._changed:
                self._error = error
                self._waiting.clear()
                self._changed.notify_all()

    def _next(self) -> tuple[Kept, np.ndarray] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            return self._waiting.popleft() if self._waiting else None

    def _put(self, kept: Kept, array: np.ndarray) -> None:
        kept.file, kept.tensor = f"{self._files:05}.safetensors", str(len(self._pending))
        self._pending[kept.tensor] = Stored.of(array)
        self._pending_bytes += array.nbytes
        if self._pending_bytes >= FILE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            path = self._folder / f"{self._files:05}.safetensors"
            with atomic_file(path) as file:
                write_stream(file, self._pending, {}, sealed=True)
            self._files += 1
            self._pending, self._pending_bytes = {}, 0
