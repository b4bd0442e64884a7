"""A process pool in which a crashing process fails only its own task.

`concurrent.futures.ProcessPoolExecutor` cannot do this: one process that crashes breaks the whole pool
and fails the tasks of all others, the pool does not say how it died, its processes outlive a parent that
was killed (and would go on writing files that no ledger lists), and a task sends nothing before its end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, TypeVar

from vit_config.processes import signals_withheld

Task = TypeVar("Task")
Tell = Callable[[Any], None]
"""Sends a message from a task to the parent process; returns when the parent has handled it."""


class Message(NamedTuple, Generic[Task]):
    """A message from a task that is being worked on."""

    task: Task
    message: Any


class Ended(NamedTuple, Generic[Task]):
    """A task has ended."""

    task: Task
    result: Any
    """Return value of `work`; None if its process died."""
    died: str | None
    """How the process died, in words; None if it did not."""


def run_tasks(
    tasks: Sequence[Task], work: Callable[[Task, Tell], Any], processes: int
) -> Generator[Message[Task] | Ended[Task]]:
    """Run tasks in a few processes at once, and yield their messages and results.

    The processes share no state with this one, and they die with it. Closing the iterator kills them.

    Args:
        work: a function at the top level of a module; it must not raise.
        processes: number of processes that work at once.
    """
    waiting, pool = deque(tasks), []
    try:
        while len(pool) < min(processes, len(tasks)):
            pool.append(_Worker(work))
        while waiting or any(worker.busy for worker in pool):
            for worker in pool:
                if not worker.busy and waiting:
                    worker.give(waiting.popleft())
            busy = {worker.pipe: worker for worker in pool if worker.busy}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # pyright: ignore[reportArgumentType]
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, OSError):
                    yield Ended(worker.take(), None, worker.how_it_died())
                    pool[pool.index(worker)] = _Worker(work) if waiting else worker
                    continue
                if kind == "end":
                    yield Ended(worker.take(), content, None)
                else:
                    yield Message(worker.task[0], content)
                    worker.go_on()
    finally:
        for worker in pool:
            worker.kill()


class _Worker:
    """A process and its current task."""

    def __init__(self, work: Callable) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        with signals_withheld(signal.SIGINT):
            self.process.start()
        theirs.close()  # so that reading from ours ends when the process does
        self.task: list[Any] = []

    @property
    def busy(self) -> bool:
        return bool(self.task)

    def give(self, task: Any) -> None:
        self.task = [task]
        self.go_on(task)

    def go_on(self, message: Any = None) -> None:
        with suppress(OSError):  # the process is dead: reading from the pipe will tell
            self.pipe.send(message)

    def take(self) -> Any:
        return self.task.pop()

    def how_it_died(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "its process was killed (SIGKILL); perhaps there was not enough memory"
        if code < 0:
            return f"its process crashed ({signal.Signals(-code).name})"
        return f"its process ended with status {code}"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, work: Callable[[Any, Tell], Any]) -> None:
    """Work on one task after the other, in a process of the pool."""
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def tell(message: Any) -> None:
        pipe.send(("message", message))
        pipe.recv()

    with suppress(EOFError, OSError):  # the parent has closed the pipe
        while True:
            pipe.send(("end", work(pipe.recv(), tell)))


def _die_with_parent() -> None:
    """End this process when its parent ends, since no one keeps the ledger then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)
