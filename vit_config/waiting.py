"""A notice of the current work on standard error, for somebody who waits, with the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Timer
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vit_config.screen import screen
from vit_config.terminal import harmless

Item = TypeVar("Item")
PATIENCE = 5.0
"""Seconds after which the notice appears."""
REMEMBERED = 3600.0
"""Seconds of work by which the time left is estimated; a stage may take minutes."""

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
        console: Console | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Name the first stage; see `now`.

        Args:
            what: the current work.
            work: its amount.
            then: the amount of all that follows.
            console: the terminal; None is standard error.
            patience: seconds after which the line appears.
        """
        console = console or screen(stderr=True)
        self._line = Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(30),
            TimeElapsedColumn(), TimeRemainingColumn(), speed_estimate_period=REMEMBERED,
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._line.add_task("", total=None)
        self._timer = Timer(patience, self._line.start)
        self._timer.daemon = True
        self._done = self._work = 0.0
        self.now(what, work, then)

    def now(self, what: str, work: float = 0.0, then: float = 0.0) -> None:
        """Begin the next stage.

        Args:
            what: the current work.
            work: its amount, in any unit that is the same for all stages; 0 if it is unknown.
            then: the amount of all that follows.
        """
        self._done, self._work = self._done + self._work, work
        # not by `update`, which forgets the pace so far where the total is another
        self._line.tasks[0].total = self._done + work + then if work else None
        self._line.update(self._task, description=harmless(what), completed=self._done)

    def note_share(self, share: float) -> None:
        """Note the share of the stage that is done, from 0 to 1."""
        self._line.update(self._task, completed=self._done + share * self._work)

    def over(self, items: Iterable[Item], count: int) -> Iterator[Item]:
        """Yield items, of which there are `count`, and note how many are done."""
        for number, item in enumerate(items, 1):
            yield item
            self.note_share(min(number / count, 1.0))

    def __enter__(self) -> Waiting:
        self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._line.stop()
