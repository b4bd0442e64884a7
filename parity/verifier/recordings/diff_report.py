"""The difference of two recordings as a table and as JSON."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.judged import Judged
from parity.measure.shown import number
from parity.measure.site import Stage
from parity.measure.tables import show_table
from parity.measure.tolerance import ASSUMED, FACTOR
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import Divergence, StageComparison

JSON_VERSION = 2


def print_table(
    difference: Difference, console: Console, follows: Collection[tuple[int, Stage]] = ()
) -> None:
    """Print one line per stage, and the modules that found no partner.

    Args:
        follows: steps and stages that differ only by what was explained before them.
    """
    show_table(_table(difference, follows), console)
    for line in _alignment_notes(difference):
        console.print(f"[dim]{escape(line)}[/]")


def print_verdict(
    difference: Difference, console: Console, but_for: Collection[str] = (), accepted: bool = False
) -> None:
    """Print the verdict, and what was not compared.

    Args:
        but_for: causes but for which the two are equal.
        accepted: whether the user accepts these.
    """
    names = f"{difference.name_a} and {difference.name_b}"
    for line in difference.b_alone:
        console.print(f"B alone has {escape(line)}")
    for line in difference.left_out:
        stage, _, those = line.partition(": ")
        why = "; nothing of the other side holds their numbers" if stage == "parameters" else ""
        console.print(f"not compared: {stage}: {escape(those)}{why}")
    if not difference.equal and not but_for:
        console.print(f"[bold red]DIFFERENT[/]: {names}")
        return
    for flag in difference.uncertified:
        console.print(
            f"[bold yellow]UNCERTIFIED[/]: float32 products ran at reduced precision - {escape(flag)}"
        )
    if difference.left_out:
        agree = f"agree in the {difference.tensors} tensors compared"
        console.print(f"[bold yellow]INCOMPLETE[/]: {names} {agree}")
    equal = difference.verdict_but_for_differences == "EQUAL"
    if but_for:
        color = "green" if accepted and equal else "yellow"
        console.print(f"[bold {color}]EQUAL but for: {', '.join(but_for)}[/]")
        hint = (
            f"; exit status 1, or 0 with --accept {','.join(but_for)}" if equal and not accepted else ""
        )
        console.print(f"  {names}{hint}")
    elif equal:
        console.print(f"[bold green]EQUAL[/]: {names}, to rounding")


def _table(difference: Difference, follows: Collection[tuple[int, Stage]]) -> Table:
    title = escape(f"{difference.name_a} (A) against {difference.name_b} (B)")
    table = Table(title=title, title_justify="left", caption_justify="left")
    steps = {each.step for each in difference.comparisons}
    columns = ["step"] if len(steps) > 1 else []
    for name in (*columns, "stage"):
        table.add_column(name)
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    for name in ("error", "limit"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in difference.comparisons:
        step = [str(each.step)] if columns else []
        follow = (each.step, each.stage) in follows
        table.add_row(*step, *_cells(each, "follows" if follow else "differs"))
    yardstick = (
        f"limit: {FACTOR:g} times what one unit in the last place of A's parameters and inputs changes"
        if difference.traces.shadow
        else f"limit: {ASSUMED:g} units in the last place; no shadow of A was recorded"
    )
    table.caption = yardstick
    return table


def _cells(each: StageComparison, differs: str) -> list[str]:
    worst = each.worst
    verdict = "[green]ok[/]" if each.passed else f"[bold red]{differs}[/]"
    if worst is None:
        return [each.stage, "0", "-", "-", "-", "[yellow]nothing to compare[/]"]
    return [
        each.stage,
        str(len(each.judged)),
        escape(str(worst.site)) if worst.score else "-",
        number(worst.error),
        number(worst.limit),
        verdict,
    ]


def _alignment_notes(difference: Difference) -> list[str]:
    """Return notes: common factors that gradients were divided by, and modules with parameters that have
    no partner (fused, split, or missing on the other side)."""
    notes = [
        f"step {each.step}: backward, B's gradients are {each.factor:.10g} times A's, of a loss so many"
        " times larger; those of the parameters are the same"
        for each in difference.comparisons
        if each.factor != 1
    ]
    traces, alignment = difference.traces, difference.alignment
    for side, trace, names in (("A", traces.a, alignment.only_a), ("B", traces.b, alignment.only_b)):
        holding = {event.path.rpartition(".")[0] for event in trace.of("parameters", trace.steps[0])}
        names = [name for name in names if name in holding]
        if names:
            shown = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
            notes.append(f"without a partner: {len(names)} modules of {side}: {shown}")
    return notes


def to_dict(difference: Difference) -> dict[str, Any]:
    """Return the difference as plain data; docs/verifying.md describes every field."""
    return {
        "version": JSON_VERSION,
        "a": difference.name_a,
        "b": difference.name_b,
        "equal": difference.equal,
        "uncertified": list(difference.uncertified),
        "verdict": difference.verdict,
        "left_out": list(difference.left_out),
        "b_alone": list(difference.b_alone),
        "first": None if difference.first is None else _divergence(difference.first),
        "places": [[_divergence(each) for each in group] for group in difference.places],
        "stages": [
            {
                "step": each.step,
                "stage": each.stage,
                "tensors": len(each.judged),
                "passed": each.passed,
                "worst": None if each.worst is None else _judged(each.worst),
                "first": None if each.divergence is None else _divergence(each.divergence),
            }
            for each in difference.comparisons
        ],
        "modules": {
            "aligned": [[a.path, b.path] for a, b in difference.alignment.modules.items()],
            "only_a": list(difference.alignment.only_a),
            "only_b": list(difference.alignment.only_b),
        },
        "environment": {
            "a": difference.traces.a.index.versions | difference.traces.a.index.precision,
            "b": difference.traces.b.index.versions | difference.traces.b.index.precision,
        },
    }


def _divergence(each: Divergence) -> dict[str, Any]:
    return {
        "stage": each.stage,
        "where": each.where,
        "where_b": each.where_b,
        "what": each.what,
        **_judged(each.judged),
    }


def _judged(each: Judged) -> dict[str, Any]:
    return {
        "tensor": str(each.site),
        "tensor_b": str(each.partner),
        "error": each.error,
        "limit": each.limit,
        "limit_from": each.origin,
    }
