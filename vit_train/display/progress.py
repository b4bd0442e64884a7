"""The progress of a run: rich's bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINES = 10
"""Lines that a run prints if there is no terminal for a bar."""
REMEMBERED = 3600.0
"""Seconds of training by which the time left is estimated."""
WAIT = 0.05
"""Share of time spent waiting for data above which it is shown."""
ADVICE = (
    "steps wait for data: prepare images of about the size that the model sees, lay the set on a local"
    " disk, give the run more cores (--workers), or fewer changes of images"
)
"""Advice for that case, if the run goes on for longer than `LONG`."""
LONG = 60.0
"""Seconds after which waiting deserves advice."""


class TrainingBar:
    """A bar with loss, accuracy, speed and time left; without a terminal, a line now and then.

    The time left is known after the second step: the first, which compiles, does not count.
    """

    def __init__(self, console: Console, *, start_step: int, total_steps: int, steps_per_epoch: int):
        self._console, self._total, self._per_epoch = console, total_steps, steps_per_epoch
        self._next_line = start_step
        self._seen = self._advised = False
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            get_time=time.perf_counter,
            speed_estimate_period=REMEMBERED,
        )
        self._progress.add_task("starting", total=total_steps, completed=start_step, numbers="")
        self._task = self._progress.tasks[0]

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def update(self, step: int, means: dict[str, float]) -> None:
        """Show the newest numbers.

        Args:
            step: updates done so far.
            means: loss, accuracy, images_per_second and data_wait since the last call.
        """
        epochs = self._total // self._per_epoch
        where = f"epoch {min(-(-step // self._per_epoch), epochs)}/{epochs}"
        wait, elapsed = means.get("data_wait", 0.0), self._task.elapsed or 0.0
        waiting = f"  waits for data {wait:.0%}" if wait > WAIT else ""
        if waiting and elapsed > LONG and self._seen and not self._advised:  # the first is the start-up
            self._advised = True
            self.note(ADVICE)
        self._seen = True
        numbers = (
            f"loss {means['loss']:.4f}  accuracy {means['accuracy']:.3f}"
            f"  {means['images_per_second']:,.0f} images/s{waiting}"
        )
        self._progress.update(self._task.id, completed=step, description=where, numbers=numbers)
        if not self._console.is_terminal and (step >= self._next_line or step == self._total):
            self._next_line = step + self._total // LINES
            left = None if step == self._total else self._task.time_remaining
            still = "" if left is None else f"  left {timedelta(seconds=left)}"
            self._console.print(f"{where}  {numbers}  {elapsed:.0f} s{still}", highlight=False)

    def advance(self, step: int) -> None:
        """Move the bar on, between two updates of the numbers; called after every step."""
        self._progress.update(self._task.id, completed=step)

    def note(self, text: str) -> None:
        """Print a line above the bar; any thread may call this."""
        self._console.print(text, markup=False)

    def leave(self) -> None:
        """Give the terminal back, for a process that ends at once."""
        self._console.show_cursor(True)
