"""Items that worker processes prepare ahead of their consumer, in order.

This is for work that Python threads cannot do side by side. Processes are started afresh, not
forked: a fork of a program that has threads, as JAX and PyTorch have, may hang. Item i is prepared
by process i modulo the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from vit_config.errors import DataError
from vit_config.processes import signals_withheld
from vit_config.terminal import keep_libraries_silent
from vit_train.batches.read_ahead import Items

T = TypeVar("T")


def read_by_workers(items: Items[T], *, start: int = 0, num_workers: int) -> Generator[T, None, None]:
    """Iterate in order from item `start` on; closing the iterator ends the processes.

    An error in preparing an item is raised when the item's turn comes. Records that a worker found
    damaged are added to those of `items`. Ctrl-C and SIGTERM reach this process alone; the workers
    end with it, however it ends.

    Args:
        items: picklable items, with a dictionary of `damaged` records.
        num_workers: number of processes, and of items prepared ahead.

    Raises:
        DataError: a worker was ended from outside.
    """
    with ExitStack() as stack:
        count = min(num_workers, len(items) - start)
        workers = [stack.enter_context(closing(_Worker(items))) for _ in range(count)]
        for index, worker in enumerate(workers, start):
            worker.give(index)
        for index, worker in zip(range(start, len(items)), cycle(workers), strict=False):
            try:
                content = worker.take()
            except (EOFError, OSError):
                raise DataError(
                    f"one of {num_workers} worker processes was ended from outside, perhaps for want of"
                    " memory; use fewer --workers, or none"
                ) from None
            if index + count < len(items):
                worker.give(index + count)
            if isinstance(content, Exception):
                raise content
            item, damaged = content
            items.damaged.update(damaged)  # pyright: ignore[reportAttributeAccessIssue]
            yield item


class _Worker(Generic[T]):
    """A process that prepares one item at a time."""

    def __init__(self, items: Items[T]) -> None:
        context = multiprocessing.get_context("spawn")
        self._arrays = SharedFile()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._arrays, items), daemon=True)
        with signals_withheld(signal.SIGINT, signal.SIGTERM):
            self._process.start()
        theirs.close()  # so that reading from ours ends when the process does

    def give(self, index: int) -> None:
        """Have the worker prepare an item, when the one before has been taken."""
        with suppress(OSError):  # the worker is dead: `take` will raise
            self._pipe.send(index)

    def take(self) -> tuple[T, dict[int, DataError]] | Exception:
        """Return the item given last and the damaged records so far, or the error of preparing it."""
        content, arrays = self._pipe.recv()
        return pickle.loads(content, buffers=self._arrays.read(arrays))

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._arrays.close()


def _serve(pipe: Connection, arrays: SharedFile, items: Any) -> None:
    """Serve in a worker process: prepare one item after the other, until the other end is closed."""
    keep_libraries_silent()
    with suppress(EOFError, OSError):
        while True:
            index = pipe.recv()
            try:
                answer = (items[index], items.damaged)
            except Exception as error:
                if not isinstance(error, DataError):
                    error.add_note(f"In a worker process:\n{traceback.format_exc()}")
                answer = error
            buffers: list[pickle.PickleBuffer] = []
            content = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
            pipe.send((content, arrays.write([buffer.raw() for buffer in buffers])))


class SharedFile:
    """A file in memory that one process writes and another reads, in turns.

    The file passes to a process as an argument of its start. Linux has such files; elsewhere `write`
    returns the content, to be sent otherwise.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("arrays") if hasattr(os, "memfd_create") else None

    def __getstate__(self) -> dict[str, Any]:
        return {"file": None if self._file is None else reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file = state["file"] and state["file"].detach()

    def write(self, arrays: Sequence[memoryview]) -> Sequence[int | bytes]:
        """Write arrays from the file's beginning on.

        Returns:
            The arguments of `read`: the bytes that each array has, or without a shared file the
            content itself.
        """
        if self._file is None:
            return [bytes(array) for array in arrays]
        place = 0
        for array in arrays:
            left = array
            while left.nbytes:  # Linux writes 2 GiB at most at once
                done = os.pwrite(self._file, left, place)
                left, place = left[done:], place + done
        return [array.nbytes for array in arrays]

    def read(self, written: Sequence[int | bytes]) -> list[bytearray]:
        """Read the arrays that the other process wrote, given the result of its `write`."""
        arrays, place = [], 0
        for each in written:
            if isinstance(each, bytes):
                arrays.append(bytearray(each))
                continue
            assert self._file is not None
            array = bytearray(each)
            left = memoryview(array)
            while left:
                done = os.preadv(self._file, [left], place)
                left, place = left[done:], place + done
            arrays.append(array)
        return arrays

    def close(self) -> None:
        """Close the file; it is gone when both processes have closed it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
