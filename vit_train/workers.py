"""Items prepared by processes ahead of the one that wants them, in their order.

For what Python threads cannot do side by side. Processes are started afresh, not forked: a fork of a
program that has threads, as JAX and PyTorch have, may hang.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from vit_config.errors import DataError
from vit_train.read_ahead import Items

T = TypeVar("T")

_held: Any = None
"""In a worker: what it prepares items of."""


def read_by_workers(items: Items[T], *, start: int = 0, num_workers: int) -> Generator[T, None, None]:
    """Iterate in order from item `start` on; closing the iterator ends the processes.

    What preparing an item raises is raised when its turn comes. Records that a worker found damaged are
    added to those of `items`.

    Args:
        items: can be pickled; has a dictionary of `damaged` records.
        num_workers: processes, and items prepared ahead.

    Raises:
        DataError: a process was ended from outside.
    """
    indices = iter(range(start, len(items)))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_workers, context, initializer=_hold, initargs=(items,))
    try:
        pending: deque[Future[Any]] = deque(
            pool.submit(_prepare, i) for i in islice(indices, num_workers)
        )
        while pending:
            item, damaged = pending.popleft().result()
            pending.extend(pool.submit(_prepare, i) for i in islice(indices, 1))
            items.damaged.update(damaged)  # pyright: ignore[reportAttributeAccessIssue]
            yield item
    except BrokenProcessPool:
        raise DataError(
            f"one of {num_workers} worker processes was ended from outside, perhaps for want of memory;"
            " use fewer --workers, or none"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _hold(items: Any) -> None:
    global _held
    _held = items
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends by its own rule, and then its workers


def _prepare(index: int) -> tuple[Any, dict[int, DataError]]:
    return _held[index], _held.damaged
