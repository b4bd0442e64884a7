"""A diagnosis in print and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from parity.verifier.diagnose.diagnosis import Diagnosis
from parity.verifier.diagnose.verdict import Cause
from parity.verifier.diff import diff_report
from parity.verifier.diff.diff_report import print_lines, print_verdict

JSON_VERSION = 2


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print every place that differs, its cause with the evidence, and the line to change."""
    for place in diagnosis.places:
        first, others = place.divergences[0], len(place.divergences) - 1
        more = f", and {others} more like it" if others else ""
        console.print(f"[bold]{escape(str(first))}[/]{more} [dim]({first.stage})[/]")
        _print_causes(place.verdict.causes, console)
        if place.verdict.unknown:
            console.print(f"  cause: [bold]none of the known[/]; {escape(place.verdict.unknown)}")
    print_lines(diagnosis.difference, console)
    print_verdict(diagnosis.difference, console)


def _print_causes(causes: tuple[Cause, ...], console: Console) -> None:
    """Of models one cause for each place, whose formulas follow; of steps the best."""
    for number, cause in enumerate(causes):
        if cause.residual_a is None or cause.residual_b is None:
            said = f": {escape(cause.message)}" if cause.message else ""
            console.print(f"  cause: [bold]{escape(cause.name)}[/]{said}")
        elif number:
            console.print(f"  [dim]and: {cause.name}: A {escape(cause.a)}; B {escape(cause.b)}[/]")
        else:
            console.print(f"  cause: [bold]{cause.name}[/]")
            for side, words, residual in (
                ("A", cause.a, cause.residual_a), ("B", cause.b, cause.residual_b),
            ):  # fmt: skip
                share = _share(residual, cause)
                console.print(f"    {side}  {escape(words)}   [dim]recomputed to {share}[/]")
            if cause.advice:
                console.print(f"    change: {escape(cause.advice)}")


def _share(residual: float, cause: Cause) -> str:
    """A residual as a share of the difference that it explains."""
    return f"{residual / cause.difference:.0e} of the difference" if cause.difference else "nothing left"


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data; docs/verifying.md describes every field."""
    found = diff_report.to_dict(diagnosis.difference)
    return {
        "version": JSON_VERSION,
        "a": found["a"],
        "b": found["b"],
        "equal": diagnosis.equal,
        "first": found["first"],
        "causes": [cause.to_dict() for cause in diagnosis.causes],
        "unknown": diagnosis.unknown,
        "places": [
            {
                "where": [each.where for each in place.divergences],
                "stage": place.divergences[0].stage,
                "what": str(place.divergences[0]),
                **place.verdict.to_dict(),
            }
            for place in diagnosis.places
        ],
        "lines": found["lines"],
        "environment": found["environment"],
    }
