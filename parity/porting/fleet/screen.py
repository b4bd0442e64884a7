"""Terminal output of a fleet: progress while it is converted, and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from parity.measure.tables import show_table
from parity.porting.fleet.work import Result

COLOURS = {"done": "green", "unchanged": "green", "skipped": "dim", "asked": "yellow", "failed": "red"}


class FleetProgress:
    """A progress bar on a terminal, with a line per failure; elsewhere a line per checkpoint."""

    def __init__(self, console: Console, sizes: Mapping[str, int]) -> None:
        """Set up the bar.

        Args:
            sizes: bytes of each checkpoint to convert.
        """
        self.console, self.sizes = console, sizes
        self.finished = self.ended_bytes = 0
        self.shares: dict[str, float] = {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(self._description, total=sum(sizes.values()))

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    @property
    def _description(self) -> str:
        return f"{self.finished} of {len(self.sizes)}"

    def moved(self, row: str, share: float) -> None:
        """Note that a share, 0 to 1, of a checkpoint was written."""
        self.shares[row] = share
        self._update()

    def ended(self, result: Result) -> None:
        """Note that a checkpoint's conversion has ended, and print a line if it needs one."""
        self.finished += 1
        self.ended_bytes += self.sizes[result.row]
        self.shares.pop(result.row, None)
        if not self.console.is_terminal or not result.passed:
            count = f"[{self.finished}/{len(self.sizes)}]"
            self.say(f"{escape(count)} {_line(result)}")
        self._update()

    def say(self, text: str) -> None:
        """Print a line of markup."""
        self.console.print(text, soft_wrap=True, highlight=False)

    def _update(self) -> None:
        moving = sum(share * self.sizes[row] for row, share in self.shares.items())
        self.bar.update(
            self.task, completed=int(self.ended_bytes + moving), description=self._description
        )


def _line(result: Result) -> str:
    status = f"[{COLOURS[result.status]}]{result.status}[/]"
    end = result.error if result.error is not None else f"-> {result.output} ({result.seconds:.1f} s)"
    return f"{status} {escape(result.row)} {escape(end)}"


def print_summary(console: Console, results: Sequence[Result], *, seconds: float) -> None:
    """Print a summary of all results, and a line for each checkpoint that is not converted."""
    counts = Counter(result.status for result in results)
    wrong = [result for result in results if not result.passed]
    if wrong:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("not converted", "", "why"):
            table.add_column(name, overflow="fold")
        for each in wrong:
            status = f"[{COLOURS[each.status]}]{each.status}"
            table.add_row(escape(each.row), status, escape(each.error or ""))
        show_table(table, console)
    text = ", ".join(f"[{COLOURS[name]}]{counts[name]} {name}[/]" for name in COLOURS if counts[name])
    console.print(
        f"[bold]{len(results)} checkpoints[/]: {text or 'none'}; {seconds:.1f} s", highlight=False
    )
