"""Items that threads prepare ahead of their consumer, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Items(Protocol[T_co]):
    """A sequence whose items any thread can prepare one by one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> T_co: ...


def read_ahead(items: Items[T], *, start: int = 0, num_threads: int) -> Generator[T, None, None]:
    """Iterate in order from item `start` on; closing the iterator ends the threads.

    An error in preparing an item is raised when the item's turn comes.

    Args:
        num_threads: number of items prepared, and held, ahead; 0 prepares each when it is asked for.
    """
    indices = iter(range(start, len(items)))
    if num_threads == 0:
        yield from map(items.__getitem__, indices)
        return
    with ThreadPoolExecutor(num_threads, thread_name_prefix="read-ahead") as pool:
        pending: deque[Future[T]] = deque(
            pool.submit(items.__getitem__, index) for index in islice(indices, num_threads)
        )
        try:
            while pending:
                item = pending.popleft().result()
                pending.extend(pool.submit(items.__getitem__, index) for index in islice(indices, 1))
                yield item
        finally:
            for waiting in pending:
                waiting.cancel()
