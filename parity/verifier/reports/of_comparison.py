"""The report of a comparison by operations."""

from __future__ import annotations

from parity.verifier.operations.comparison import MODULE_COLUMNS, Comparison, Part, Place
from parity.verifier.reports.report import Finding, Level, Report, Table

KINDS = {
    "operations": "other operations",
    "order": "the same numbers in another order",
    "parameter": "another parameter",
    "rounding": "rounding to a smaller type",
    "input": "another input",
    "open": "no end found",
}


def report_of_comparison(found: Comparison, a: str, b: str) -> Report:
    """What `parity locate` found."""
    counts = found.counts
    nothing = Part("", ())
    findings = [
        *(_finding(place, "error") for place in found.places),
        *(
            Finding("not-compared", "warning", f"not compared: {each}", nothing, nothing)
            for each in counts.outputs_left_out
        ),
        *(_finding(place, "note") for place in found.notes),
    ]
    summary = (
        f"{counts.outputs} outputs compared ({counts.elements} numbers), largest relative error"
        f" {found.error:.2g}; {counts.operations_a} operations in A, {counts.operations_b} in B"
    )
    own = found.to_dict() | {"left_out": list(counts.outputs_left_out)}
    rows = tuple(found.module_rows())
    table = Table((*MODULE_COLUMNS, ""), rows) if rows else None
    return Report("locate", a, b, found.verdict, summary, tuple(findings), table, found.legend, own)


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
