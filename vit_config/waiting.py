"""A notice of the current work on standard error, for somebody who waits, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from threading import Timer
from types import TracebackType
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from vit_config.screen import screen
from vit_config.terminal import harmless

Item = TypeVar("Item")
PATIENCE = 5.0
"""Seconds after which the notice appears."""
EXPECTED = 0.2
"""Share of all work that the expected pace counts for, beside what is measured."""
LATE = 0.1
"""Share of its time so far that a stage is taken to need yet, once it needs more than was expected."""

Stage = Callable[[str, float, float], object]
"""Function that is told of each stage as it begins: a description, its work, and that of the others."""


def nobody(what: str, work: float, then: float) -> None:
    """Tell nobody of a stage."""


class Plan:
    """Stages that follow each other, with the work of each."""

    def __init__(self, on_stage: Stage, works: Mapping[str, float]) -> None:
        self._on_stage, self._ahead = on_stage, dict(works)

    def begin(self, what: str) -> None:
        """Tell that a stage begins; one that is not planned is of unknown length."""
        work = self._ahead.pop(what, 0.0)
        self._on_stage(what, work, sum(self._ahead.values()))


class Pace:
    """An estimate of the time left, from the amounts of work of stages that follow each other.

    Amounts are relative to each other: images, tensors, or the seconds that stages took elsewhere.
    """

    def __init__(self, seconds: float | None = None) -> None:
        """Begin with no stage.

        Args:
            seconds: how long a unit of work is expected to take; None if nobody knows.
        """
        self._first = seconds
        self._took = self._done = 0.0  # of the stages that are over
        self._work = self._then = self._share = 0.0
        self._began: float | None = None

    def begin(self, now: float, work: float, then: float) -> None:
        """Begin a stage of some work, after which there is some more; 0 and 0 if that is unknown."""
        if self._began is not None and self._work:
            self._took, self._done = self._took + now - self._began, self._done + self._work
        self._work, self._then, self._share, self._began = work, then, 0.0, now

    def note_share(self, share: float) -> None:
        """Note the share of the stage that is done, from 0 to 1."""
        self._share = share

    def left(self, now: float) -> float | None:
        """Return the seconds left; None if nobody knows."""
        if self._began is None or not self._work:
            return None
        took, done = now - self._began, self._share * self._work
        known, seconds = self._done + done, self._took + (took if done else 0.0)
        if self._first is not None:
            counts = EXPECTED * (self._done + self._work + self._then)
            known, seconds = known + counts, seconds + counts * self._first
        if not known:
            return None
        pace = seconds / known
        rest = pace * (self._work - done) if done else max(pace * self._work - took, LATE * took)
        return rest + pace * self._then


class Waiting:
    """A line with the current work, its duration and, if its amount is known, a bar with the time left.

    It is shown on a terminal alone, after some seconds; at the end it disappears.
    """

    def __init__(
        self,
        what: str,
        work: float = 0.0,
        then: float = 0.0,
        *,
        pace: float | None = None,
        console: Console | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Name the first stage.

        Args:
            what: the current work.
            work: its amount, in any unit; 0 if it is unknown.
            then: the amount of all that follows.
            pace: seconds that a unit of work is expected to take.
            console: the terminal; None is standard error.
            patience: seconds after which the line appears.
        """
        console = console or screen(stderr=True)
        self._pace, self._began = Pace(pace), time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), _Bar(self))
        self._line = Progress(
            *columns, TimeElapsedColumn(), _Left(self),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._line.add_task("", total=None)
        self._timer = Timer(patience, self._line.start)
        self._timer.daemon = True
        self.now(what, work, then)

    def now(self, what: str, work: float = 0.0, then: float = 0.0) -> None:
        """Begin the next stage."""
        self._pace.begin(time.monotonic(), work, then)
        self._line.update(self._task, description=harmless(what))

    def note_share(self, share: float) -> None:
        """Note the share of the stage that is done, from 0 to 1."""
        self._pace.note_share(share)

    def over(self, items: Iterable[Item], count: int) -> Iterator[Item]:
        """Yield items, of which there are `count`, and note how many are done."""
        for number, item in enumerate(items, 1):
            yield item
            self._pace.note_share(min(number / count, 1.0))

    def left(self) -> float | None:
        """Return the seconds left; None if nobody knows."""
        return self._pace.left(time.monotonic())

    def done(self) -> float | None:
        """Return the share of the time that is over, from 0 to 1; None if nobody knows."""
        left, took = self.left(), time.monotonic() - self._began
        return None if left is None else took / (took + left) if took else 0.0

    def __enter__(self) -> Waiting:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        self._line.stop()


class _Bar(ProgressColumn):
    """The share of the time that is over."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self._waiting = waiting

    def render(self, task: Task) -> RenderableType:
        done = self._waiting.done()
        return Text() if done is None else ProgressBar(1.0, done, width=30)


class _Left(ProgressColumn):
    """The time left."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self._waiting = waiting

    def render(self, task: Task) -> RenderableType:
        left = self._waiting.left()
        return Text("" if left is None else f"about {timedelta(seconds=round(left))} left")
