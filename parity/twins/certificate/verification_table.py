"""The result of verifying a certificate, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.tables import show_table
from parity.twins.certificate.format import Level
from parity.twins.certificate.verify import Verification, by_level
from vit_config.screen import screen


def print_verification(found: Verification, console: Console | None = None) -> None:
    """Print the numbers side by side, what has changed since, and the verdict."""
    console = console or screen(110)
    show_table(_table(found), console)
    for note in found.notes:
        console.print(f"note: {escape(note)}", highlight=False)
    for reason in found.reasons[1:]:
        console.print(f"also: {escape(reason)}", highlight=False)
    if found.passed:
        console.print(f"[bold green]VERIFIED[/]: {escape(str(found.path))}: {found.today.verdict}")
    else:
        console.print(f"[bold red]NOT VERIFIED[/]: {escape(found.reasons[0])}", highlight=False)


def _table(found: Verification) -> Table:
    then, today = found.then, found.today
    title = f"parity verify-certificate {found.path}: {then.kind} of {then.subject}"
    table = Table(title=escape(title), title_justify="left")
    for name in ("type", "what"):
        table.add_column(name)
    for name in ("certificate", "today", "limit"):
        table.add_column(name, justify="right")
    table.add_column("")
    same = _mark(then.verdict == today.verdict)
    table.add_row("", "verdict", then.verdict, today.verdict, "", same, end_section=True)
    now = by_level(today)
    for dtype, digests in then.parameters.items():
        other = today.parameters.get(dtype)
        for side, twin in (("jax", "Flax"), ("torch", "PyTorch")):
            before = getattr(digests.initial, side)
            after = getattr(other.initial, side) if other else ""
            cells = (before[:16], after[:16] or "-", "the same", _mark(before == after))
            table.add_row(dtype, f"initial parameters, {twin}", *cells)
        for key, level in by_level(then).items():
            if key[0] == dtype:
                table.add_row(dtype, level.level, *_cells(level, now.get(key)))
        for row in _run_rows(found, dtype):
            table.add_row(dtype, *row)
        table.add_section()
    table.caption = "levels: the worst tensor's error, and today's limit of it"
    table.caption_justify = "left"
    return table


def _cells(then: Level, today: Level | None) -> tuple[str, ...]:
    if today is None:
        return _number(then.worst.error), "-", "", _mark(False)
    return (
        _number(then.worst.error),
        _number(today.worst.error),
        _number(today.worst.limit),
        _mark(today.passed and today.tensors >= then.tensors),
    )


def _run_rows(found: Verification, dtype: str) -> Iterator[tuple[str, ...]]:
    """Yield one row for each curve of the whole run, with its end."""
    runs = {str(name): run for name, run in found.today.yardstick.runs.items()}
    for name, run in found.then.yardstick.runs.items():
        if name != dtype or name not in runs:
            continue
        for part, curves in run.curves.items():
            now = runs[name].curves.get(part)
            if now is not None:
                yield (
                    f"whole run, {part}",
                    _number(curves.twins[-1]),
                    _number(now.twins[-1]),
                    _number(now.limits[-1]),
                    _mark(not now.failures),
                )


def _number(value: float) -> str:
    return f"{value:.1e}"


def _mark(good: bool) -> str:
    return "[green]ok[/]" if good else "[bold red]differs[/]"
