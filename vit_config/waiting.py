"""A notice of the current work on standard error, for somebody who waits."""

from __future__ import annotations

from threading import Timer
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vit_config.screen import screen
from vit_config.terminal import harmless

PATIENCE = 5.0
"""Seconds after which the notice appears."""


class Waiting:
    """A line with the current work and its duration, on a terminal alone; at the end it disappears."""

    def __init__(self, what: str, *, console: Console | None = None, patience: float = PATIENCE) -> None:
        console = console or screen(stderr=True)
        parts = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._line = Progress(*parts, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._line.add_task(harmless(what), total=None)
        self._timer = Timer(patience, self._line.start)
        self._timer.daemon = True

    def now(self, what: str) -> None:
        """Replace the text of the line."""
        self._line.update(self._task, description=harmless(what))

    def __enter__(self) -> Waiting:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        self._line.stop()
