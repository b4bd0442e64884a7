"""A diagnosis as text and as plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from parity.measure.shown import number
from parity.verifier.recordings import diff_report
from parity.verifier.recordings.diagnosis import Diagnosis
from parity.verifier.recordings.diff_report import print_table, print_verdict
from parity.verifier.recordings.verdict import StepCause

OPERATIONS = (
    "to see the operations behind it, let a function of each side return (step, arrays):"
    " parity diff FILE.py:a FILE.py:b --gradients"
)


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print one line per stage, every place that differs with its cause, and the verdict."""
    print_table(diagnosis.difference, console, diagnosis.follows)
    for number_of, place in enumerate(diagnosis.places):
        first, others = place.divergences[0], len(place.divergences) - 1
        more = f", and {others} more like it" if others else ""
        head = "also" if number_of else "first difference"
        at = f"step {first.judged.site.step}, {first.stage}" if first.judged.site.step else first.stage
        console.print(f"[bold red]{head}[/] ({at}): {escape(str(first))}{more}")
        judged = first.judged
        console.print(
            f"  error {number(judged.error)}, where rounding explains {number(judged.limit)}"
            + ("" if judged.finite else "; one side is not finite")
        )
        _print_causes(place.verdict.causes, console)
        if place.verdict.unknown:
            console.print(f"  cause: [bold]none of the known[/]; {escape(place.verdict.unknown)}")
    if any(place.verdict.unknown for place in diagnosis.places):
        console.print(f"[dim]{OPERATIONS}[/]", soft_wrap=True)
    print_verdict(diagnosis.difference, console, diagnosis.but_for, diagnosis.is_accepted)


def _print_causes(causes: tuple[StepCause, ...], console: Console) -> None:
    """Print the best cause with its evidence, and the others in one line each."""
    for rank, cause in enumerate(causes):
        if rank:
            console.print(f"  [dim]and: {cause.name}: A {escape(cause.a)}; B {escape(cause.b)}[/]")
            continue
        console.print(f"  cause: [bold]{cause.name}[/]")
        for side, words, residual in (
            ("A", cause.a, cause.residual_a), ("B", cause.b, cause.residual_b),
        ):  # fmt: skip
            share = _share(residual, cause)
            console.print(f"    {side}  {escape(words)}   [dim]recomputed to {share}[/]")
        if cause.advice:
            console.print(f"    change: {escape(cause.advice)}")


def _share(residual: float, cause: StepCause) -> str:
    """Return a residual, in words, as a share of the difference."""
    return f"{residual / cause.difference:.0e} of the difference" if cause.difference else "nothing left"


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as plain data; docs/verifying.md describes every field."""
    return diff_report.to_dict(diagnosis.difference) | {
        "verdict": diagnosis.verdict,
        "equal": diagnosis.difference.equal or diagnosis.is_accepted,
        "but_for": list(diagnosis.but_for),
        "accepted": list(diagnosis.accepted),
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
    }
