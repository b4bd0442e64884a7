"""A diagnosis in print and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from parity.verifier.diagnose.diagnosis import Diagnosis
from parity.verifier.diagnose.verdict import Cause
from parity.verifier.diff import diff_report
from parity.verifier.diff.diff_report import print_lines, print_verdict

JSON_VERSION = 1


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print every place that differs, its cause with the evidence, and the line to change."""
    for place in diagnosis.places:
        first, others = place.divergences[0], len(place.divergences) - 1
        more = f", and {others} more like it" if others else ""
        console.print(f"[bold]{escape(str(first))}[/]{more} [dim]({first.stage}, {first.mode})[/]")
        for cause in place.verdict.causes[:1]:
            _print_cause(cause, console)
        for cause in place.verdict.causes[1:]:
            console.print(
                f"  [dim]also possible: {cause.name}: A {escape(cause.a)}; B {escape(cause.b)}[/]"
            )
        if not place.verdict.causes:
            console.print(f"  cause: [bold]none of the known[/]; {escape(place.verdict.unknown or '')}")
    print_lines(diagnosis.difference, console)
    print_verdict(diagnosis.difference, console)


def _print_cause(cause: Cause, console: Console) -> None:
    console.print(f"  cause: [bold]{cause.name}[/]")
    console.print(f"    A  {escape(cause.a)}   [dim]recomputed to {_share(cause.residual_a, cause)}[/]")
    console.print(f"    B  {escape(cause.b)}   [dim]recomputed to {_share(cause.residual_b, cause)}[/]")
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
