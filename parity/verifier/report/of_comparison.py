"""The report on two programs."""

from __future__ import annotations

from parity.verifier.report.compared import Compared
from parity.verifier.report.comparison import KINDS, Place
from parity.verifier.report.report import Finding, Level, Report, Table
from parity.verifier.report.sides import PlaceSide
from parity.verifier.report.since import Since


def report_of(compared: Compared, since: Since | None = None) -> Report:
    """Make the report on two programs; `since` compares it with an earlier one."""
    findings = [
        *(finding_at(place, "error") for place in compared.places),
        *(
            Finding("not-compared", "warning", f"not compared: {each}", _NOTHING, _NOTHING)
            for part in compared.parts
            for each in part.counts.outputs_left_out
        ),
        *(finding_at(place, "note") for part in compared.parts for place in part.notes),
    ]
    findings += (
        Finding(
            "not-compared", "warning", f"the places are incomplete: {part.stopped}", _NOTHING, _NOTHING
        )
        for part in compared.parts
        if part.stopped
    )
    if compared.no_backward:
        message = f"gradients were not compared: {compared.no_backward}"
        findings.append(Finding("not-compared", "note", message, _NOTHING, _NOTHING))
    own = compared.to_dict() | {"left_out": list(compared.forward.counts.outputs_left_out)}
    own |= {} if since is None else {"since": since.to_dict()}
    head, rows = compared.module_rows()
    table = Table(head, tuple(rows)) if rows else None
    legend = {
        letter: meaning for part in reversed(compared.parts) for letter, meaning in part.legend.items()
    }
    return Report(
        "diff", compared.name_a, compared.name_b, compared.verdict, compared.summary(),
        tuple(findings), table, legend, own,
    )  # fmt: skip


_NOTHING = PlaceSide("", ())


def finding_at(place: Place, level: Level) -> Finding:
    """Make the finding on one place of two programs."""
    message = place.message or KINDS[place.kind]
    return Finding(
        rule=place.rule,
        level=level,
        message=f"{place.cause}: {message}" if place.cause else message,
        a=place.a,
        b=place.b,
        error=place.error if place.error >= 0 else None,
        limit=place.limit if place.error >= 0 else None,
        details=tuple(f"also in {each}" for each in dict.fromkeys(place.modules) if each),
        times=place.times,
    )
