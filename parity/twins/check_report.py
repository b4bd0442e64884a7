"""A check's outcome as a table, as JSON and as a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.judged import LevelResult
from parity.measure.rows import Column, Rows
from parity.measure.shown import first_three, number, portable
from parity.measure.site import LEVELS
from parity.measure.tables import show_table
from parity.measure.tolerance import epsilon
from parity.twins.check import TEXT, CheckReport
from vit_config.files.weights_file import write_atomically
from vit_config.screen import screen

JSON_VERSION = 1
REDUCED = "float32 products ran at reduced precision"
"""Words for each flag that makes a check uncertified."""


def print_report(report: CheckReport, console: Console | None = None) -> None:
    """Print one line per type and level, then the verdict and the first difference."""
    console = console or screen(110)
    show_table(_table(report), console)
    if report.fault:
        console.print(f"injected on purpose: [bold]{report.fault}[/]")
    for divergence in report.divergences:
        console.print(
            f"[bold red]first difference[/] ({divergence.dtype}): "
            f"[bold]{divergence.where or '(model)'}[/] - {escape(divergence.detail)}"
        )
    versions = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    source = f"{report.weights}; {report.batch}; seed {report.seed}\n{versions}"
    console.print(f"[dim]{escape(source)}[/]")
    if not report.agrees:
        console.print("[bold red]DIFFERENT[/]: the twins are not the same function")
    elif report.unseen:
        said = f"nothing that was compared could have differed: {report.unseen}"
        console.print(f"[bold yellow]UNCERTIFIED[/]: {said}")
    elif report.passed:
        console.print("[bold green]EQUAL[/]: the twins are the same function")
    if count := len(report.zero_gradients):
        some = escape(first_three(report.zero_gradients))
        console.print(f"zero in every number, which says nothing: {count} gradients, {some}")
    for flag in report.uncertified:
        console.print(f"[bold yellow]UNCERTIFIED[/]: {REDUCED} - {escape(flag)}")


def summary(subjects: Sequence[str], console: Console | None = None) -> Rows:
    """Return an empty table of several reports; `add_summary` adds the rows of one."""
    name = max(26, *(len(subject) + 1 for subject in subjects))
    levels = (Column(level, 16, right=False) for level in LEVELS if level != "parameters")
    columns = Column("", name, right=False), Column("type", 10, right=False), *levels
    return Rows(*columns, console=console)


def add_summary(report: CheckReport, table: Rows) -> None:
    """Add one row per type: the largest error of each level, in reduced types also in epsilons."""
    for dtype in dict.fromkeys(result.dtype for result in report.results):
        every = [result for result in report.results if result.dtype == dtype]
        results = [_with_text(result, every) for result in every if result.level in LEVELS]
        verdict = "EQUAL" if all(result.passed for result in results) else "DIFFERENT"
        reduced = dtype == "float32" and report.uncertified
        if (reduced or report.unseen) and report.agrees:
            verdict = "UNCERTIFIED"
        errors = (_largest(result) for result in results if result.level != "parameters")
        table.add(report.subject, dtype, *errors, verdict=verdict)


def _with_text(result: LevelResult, every: Sequence[LevelResult]) -> LevelResult:
    """Return a level's result joined with that of the text tower, if there is one."""
    text = [each for each in every if each.level == f"{TEXT}{result.level}"]
    return result.and_then(text[0]) if text else result


def _largest(result: LevelResult) -> str:
    if result.dtype == "float64":
        return f"{result.largest:.1e}"
    return f"{result.largest:.1e} ({result.largest / epsilon(result.dtype):.0f})"


def _table(report: CheckReport) -> Table:
    table = Table(title=escape(f"parity check {report.subject}"), title_justify="left")
    for name in ("type", "level"):
        table.add_column(name)
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    for name in ("JAX", "PyTorch", "limit"):
        table.add_column(name, justify="right")
    table.add_column("from")
    table.add_column("")
    for i, result in enumerate(report.results):
        last = i + 1 == len(report.results) or report.results[i + 1].dtype != result.dtype
        table.add_row(*_cells(result), end_section=last)
    table.caption = (
        "float64: relative difference of the twins."
        " Other types: each twin's distance to its own float64 run."
    )
    table.caption_justify = "left"
    return table


def _cells(result: LevelResult) -> list[str]:
    worst = result.worst
    verdict = "[green]ok[/]" if result.passed else f"[bold red]{result.failures} differ[/]"
    return [
        result.dtype,
        result.level,
        str(result.count),
        worst.site.name if worst.score else "-",
        number(worst.errors[0]),
        "" if len(worst.errors) == 1 else number(worst.errors[1]),
        number(worst.limit),
        worst.origin,
        verdict,
    ]


def to_dict(report: CheckReport) -> dict[str, Any]:
    """Convert a report to plain data; `docs/parity.md` describes every field."""
    return {
        "version": JSON_VERSION,
        "subject": report.subject,
        "passed": report.passed,
        "uncertified": list(report.uncertified),
        "unseen": report.unseen,
        "zero_gradients": list(report.zero_gradients),
        "weights": report.weights,
        "batch": report.batch,
        "seed": report.seed,
        "fault": report.fault,
        "environment": report.environment,
        "schema": json.loads(report.config.to_json()),
        "levels": [
            {
                "dtype": result.dtype,
                "level": result.level,
                "tensors": result.count,
                "failures": result.failures,
                "passed": result.passed,
                "largest_error": result.largest,
                "worst": {
                    "tensor": result.worst.site.name,
                    "jax_error": result.worst.errors[0],
                    "torch_error": result.worst.errors[-1],
                    "limit": result.worst.limit,
                    "limit_from": result.worst.origin,
                },
            }
            for result in report.results
        ],
        "first_differences": [
            {"dtype": d.dtype, "where": d.where, "detail": d.detail} for d in report.divergences
        ],
    }


def write_svg(report: CheckReport, path: Path) -> None:
    """Draw the printed report as an SVG picture."""
    console = screen(record=True, width=112, file=io.StringIO())
    report = replace(report, subject=portable(report.subject))
    print_report(report, console)
    svg = console.export_svg(title=f"parity check {report.subject}")
    write_atomically(path, svg.encode())
