"""Pairs in forked processes: what XLA and torch keep goes with them, and a crash is one pair's."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from evidence.clean_pairs.draw import Pair
from evidence.clean_pairs.judge import Result, judged

CONTEXT = multiprocessing.get_context("fork")


def chunks(pairs: Iterable[Pair], at_most: int = 12) -> list[list[Pair]]:
    """Pairs of one B and one size together: what the check compiles serves them all."""
    by_key: dict[Any, list[Pair]] = {}
    for pair in pairs:
        by_key.setdefault((pair.b, pair.size_name), []).append(pair)
    return [group[i : i + at_most] for group in by_key.values() for i in range(0, len(group), at_most)]


def in_processes(
    groups: Sequence[Sequence[Pair]],
    jobs: int,
    limit: float = 0,
    run: Callable[[Pair, float], Result] = judged,
) -> Iterator[tuple[Result, float]]:
    """Results as they come, each with the peak of its process's memory in GiB."""
    waiting, running = deque(groups), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            group = waiting.popleft()
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_work, args=(group, theirs, limit, run), daemon=True)
            process.start()
            theirs.close()
            running[ours] = process, deque(group)
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            process, left = running[connection]
            try:
                result, memory = connection.recv()
                left.popleft()
                yield result, memory
            except EOFError:
                process.join()
                del running[connection]
                if left:  # the first of the rest ended the process
                    pair = left.popleft()
                    yield Result(pair, "ERROR", f"its process ended with {process.exitcode}"), 0.0
                    waiting.appendleft(list(left)) if left else None


def _work(group: Sequence[Pair], connection: Connection, limit: float, run: Any) -> None:
    torch.set_num_threads(1)
    for pair in group:
        result = run(pair, limit)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        connection.send((result, memory))
        sys.stdout.flush()
    connection.close()
