"""The progress of a run at the terminal."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINES = 10
"""Lines that a run prints if there is no terminal for a bar."""
REDRAWN = 0.1
"""Seconds between two movements of the bar."""
WAIT = 0.05
"""Share of time spent waiting for data above which it is shown."""
ADVICE = (
    "steps wait for data: prepare images of about the size that the model sees, lay the set on a local"
    " disk, give the run more cores (--workers), or fewer changes of images"
)
"""Advice for that case, if the run goes on for longer than `LONG`."""
LONG = 60.0
"""Seconds after which waiting deserves advice, and left after which the first steps deserve a line."""
EARLY = 3
"""Steps after which the time left is known: the first compiles, and two may be on their way."""


class TrainingBar:
    """A bar with loss, accuracy, speed and time left; without a terminal, a line now and then."""

    def __init__(self, console: Console, *, start_step: int, total_steps: int, steps_per_epoch: int):
        self._console, self._total, self._per_epoch = console, total_steps, steps_per_epoch
        self._next_line = start_step
        self._seen = self._advised = False
        self._started = self._moved = time.perf_counter()
        self._first: tuple[int, float] | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left {task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(
            "starting", total=total_steps, completed=start_step, numbers="", left="-:--:--"
        )

    def __enter__(self) -> TrainingBar:
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.__exit__(kind, error, traceback)

    def update(self, step: int, means: dict[str, float]) -> None:
        """Show the newest numbers.

        Args:
            step: updates done so far.
            means: loss, accuracy, images_per_second and data_wait since the last call.
        """
        epochs = self._total // self._per_epoch
        epoch = min(-(-step // self._per_epoch), epochs)
        where = f"epoch {epoch}/{epochs}"
        wait = means.get("data_wait", 0.0)
        waiting = f"  waits for data {wait:.0%}" if wait > WAIT else ""
        long = time.perf_counter() - self._started > LONG
        if waiting and long and self._seen and not self._advised:  # the first wait is the start-up
            self._advised = True
            self.note(ADVICE)
        self._seen = True
        numbers = (
            f"loss {means['loss']:.4f}  accuracy {means['accuracy']:.3f}"
            f"  {means['images_per_second']:,.0f} images/s{waiting}"
        )
        left = self._left(step)
        self._progress.update(
            self._task, completed=step, description=where, numbers=numbers, left=self._shown(step)
        )
        if not self._console.is_terminal and (step >= self._next_line or step == self._total):
            self._next_line = step + self._total // LINES
            elapsed = time.perf_counter() - self._started
            still = f"  left {left}" if left is not None and step < self._total else ""
            self._console.print(f"{where}  {numbers}  {elapsed:.0f} s{still}", highlight=False)

    def advance(self, step: int) -> None:
        """Move the bar on, between two updates of the numbers; called after every step."""
        now = time.perf_counter()
        if self._first is None:
            self._first, self._moved = (step, now), -math.inf
        elif step == self._first[0] + EARLY and not self._console.is_terminal:
            left = self._left(step)
            if left is not None and left.total_seconds() > LONG:
                self.note(f"step {step} of {self._total}  left {left}")
        if now - self._moved >= REDRAWN and self._console.is_terminal:
            self._moved = now
            self._progress.update(self._task, completed=step, left=self._shown(step))

    def _left(self, step: int) -> timedelta | None:
        """Estimate the time left by that since the first step, which compiles; None if it is unknown."""
        if self._first is None or step <= self._first[0]:
            return None
        elapsed = time.perf_counter() - self._first[1]
        return timedelta(seconds=round(elapsed / (step - self._first[0]) * (self._total - step)))

    def _shown(self, step: int) -> str:
        """Return the time left; after the first step alone, which also compiles, what it is at most."""
        left = self._left(step)
        if left is not None:
            return str(left)
        most = (time.perf_counter() - self._started) * (self._total - step)
        return f"at most {timedelta(seconds=round(most))}"

    def note(self, text: str) -> None:
        """Print a line above the bar; any thread may call this."""
        self._console.print(text, markup=False)

    def leave(self) -> None:
        """Give the terminal back, for a process that ends at once."""
        self._console.show_cursor(True)
