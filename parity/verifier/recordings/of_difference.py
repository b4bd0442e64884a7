"""The report on two recordings of training."""

from __future__ import annotations

from parity.measure.shown import number
from parity.verifier.recordings.diagnosis import Diagnosis
from parity.verifier.recordings.diagnosis_report import to_dict
from parity.verifier.recordings.judge import Divergence
from parity.verifier.recordings.steps.names import CONVENTIONS
from parity.verifier.recordings.verdict import StepCause
from parity.verifier.report.report import Finding, Level, Report, Table
from parity.verifier.report.sides import PlaceSide


def report_of_diagnosis(diagnosis: Diagnosis) -> Report:
    """Make the report on two recordings."""
    findings = []
    accepted = {*diagnosis.accepted}
    for place in diagnosis.places:
        first, verdict = place.divergences[0], place.verdict
        # what is a way of the frameworks, or accepted, explains the least of a place with other causes
        mild = accepted | CONVENTIONS
        cause = min(verdict.causes, key=lambda each: each.name in mild, default=None)
        level = "note" if cause and {each.name for each in verdict.causes} <= accepted else "error"
        rule = cause.name if cause else "unknown-cause" if verdict.unknown else _rule(first)
        details = _evidence(cause) if cause else ((verdict.unknown,) if verdict.unknown else ())
        findings.append(
            _finding(first, len(place.divergences), rule=rule, level=level, cause=cause, details=details)
        )
    return _report(diagnosis, findings)


def _rule(first: Divergence) -> str:
    return f"{first.stage}-differs".replace(" ", "-")


def _report(diagnosis: Diagnosis, findings: list[Finding]) -> Report:
    difference = diagnosis.difference
    nothing = PlaceSide("", ())
    for line in (*difference.left_out, *difference.b_alone):
        stage, _, rest = line.partition(": ")
        message = f"not compared: {stage}"
        findings.append(Finding("not-compared", "warning", message, nothing, nothing, details=(rest,)))
    for flag in difference.uncertified:
        message = f"float32 products ran at reduced precision: {flag}"
        findings.append(Finding("reduced-precision", "warning", message, nothing, nothing))
    summary = f"{difference.tensors} pairs of tensors compared"
    summary += f"; equal but for: {', '.join(diagnosis.but_for)}" if diagnosis.but_for else ""
    return Report("diff", difference.name_a, difference.name_b, diagnosis.verdict, summary,
                  tuple(findings), _table(diagnosis), {}, to_dict(diagnosis))  # fmt: skip


def _finding(
    first: Divergence,
    times: int,
    *,
    rule: str,
    level: Level,
    cause: StepCause | None,
    details: tuple[str, ...],
) -> Finding:
    return Finding(
        rule=rule,
        level=level,
        message=(f"{cause.name}: " if cause else "") + f"{first} ({first.stage})",
        a=PlaceSide(cause.a if cause else "", (), first.where),
        b=PlaceSide(cause.b if cause else "", (), first.where_b),
        error=first.judged.error,
        limit=first.judged.limit,
        details=details,
        times=times,
    )


def _evidence(cause: StepCause) -> tuple[str, ...]:
    share = [each / cause.difference if cause.difference else 0.0
             for each in (cause.residual_a, cause.residual_b)]  # fmt: skip
    message = f"recomputed to {share[0]:.0e} of the difference in A, {share[1]:.0e} in B"
    return (message, *((f"change: {cause.advice}",) if cause.advice else ()))


def _table(diagnosis: Diagnosis) -> Table:
    rows = [
        (
            str(each.step),
            each.stage,
            str(len(each.judged)),
            str(each.worst.site) if each.worst and each.worst.score else "",
            number(each.worst.error) if each.worst else "",
            number(each.worst.limit) if each.worst else "",
            "ok"
            if each.passed
            else "follows"
            if (each.step, each.stage) in diagnosis.follows
            else "differs",
        )
        for each in diagnosis.difference.comparisons
    ]
    columns = ("step", "stage", "tensors", "worst tensor", "error", "limit", "")
    return Table(columns, tuple(rows))
