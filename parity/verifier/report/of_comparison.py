"""The report on two programs."""

from __future__ import annotations

from parity.verifier.report.compared import Compared
from parity.verifier.report.comparison import KINDS, Place, PlaceSide
from parity.verifier.report.report import Finding, Level, Report, Table


def report_of(found: Compared) -> Report:
    """Make the report on two programs."""
    findings = [
        *(_finding(place, "error") for place in found.places),
        *(
            Finding("not-compared", "warning", f"not compared: {each}", _NOTHING, _NOTHING)
            for part in found.parts
            for each in part.counts.outputs_left_out
        ),
        *(_finding(place, "note") for part in found.parts for place in part.notes),
    ]
    if found.no_backward:
        said = f"gradients were not compared: {found.no_backward}"
        findings.append(Finding("not-compared", "note", said, _NOTHING, _NOTHING))
    own = found.to_dict() | {"left_out": list(found.forward.counts.outputs_left_out)}
    head, rows = found.module_rows()
    table = Table(head, tuple(rows)) if rows else None
    legend = {letter: said for part in reversed(found.parts) for letter, said in part.legend.items()}
    return Report(
        "diff", found.name_a, found.name_b, found.verdict, found.summary(), tuple(findings), table,
        legend, own,
    )  # fmt: skip


_NOTHING = PlaceSide("", ())


def _finding(place: Place, level: Level) -> Finding:
    said = place.message or KINDS[place.kind]
    return Finding(
        rule=place.rule,
        level=level,
        message=f"{place.cause}: {said}" if place.cause else said,
        a=place.a,
        b=place.b,
        error=place.error if place.error >= 0 else None,
        limit=place.limit if place.error >= 0 else None,
        details=tuple(f"also in {each}" for each in dict.fromkeys(place.modules) if each),
        times=place.times,
    )
