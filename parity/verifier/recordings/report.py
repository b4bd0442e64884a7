"""The report on two recordings of training: as text, and in the form that all reports share."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Lines

from parity.measure.judged import Judged
from parity.measure.shown import number
from parity.measure.tables import show_table
from parity.measure.tolerance import ASSUMED
from parity.verifier.recordings.diagnosis import Diagnosis
from parity.verifier.recordings.judge import Divergence
from parity.verifier.recordings.search import PlaceKind
from parity.verifier.recordings.steps.names import CONVENTIONS, StepCause
from parity.verifier.report.of_comparison import finding_at
from parity.verifier.report.report import Finding, Level, Report, Table
from parity.verifier.report.sides import PlaceSide

JSON_VERSION = 3
COLUMNS = ("step", "stage", "tensors", "worst tensor", "error", "limit", "")
COLORS = {"ok": "green", "follows": "bold red", "differs": "bold red", "nothing to compare": "yellow"}


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print one line per stage, every place that differs with its cause, and the verdict."""
    _print_table(diagnosis, console)
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
        if (compared := place.verdict.compared) is not None and compared.places:
            console.print("  both programs, run again on the parameters and the batch of this step:")
            for line in compared.to_text().splitlines():
                console.print(f"  {escape(line)}" if line else "", soft_wrap=True)
        else:
            _print_causes(place.verdict.causes, console)
        if place.verdict.unknown:
            console.print(f"  cause: [bold]none of the known[/]; {escape(place.verdict.unknown)}")
    _print_verdict(diagnosis, console)


def _rows(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    rows = []
    for each in diagnosis.difference.comparisons:
        worst = each.worst
        if worst is None:
            cells = ("0", "-", "-", "-", "nothing to compare")
        else:
            state = "follows" if (each.step, each.stage) in diagnosis.follows else "differs"
            site = str(worst.site) if worst.score else "-"
            numbers = number(worst.error), number(worst.limit)
            cells = (str(len(each.judged)), site, *numbers, "ok" if each.passed else state)
        rows.append((str(each.step), each.stage, *cells))
    return rows


def _print_table(diagnosis: Diagnosis, console: Console) -> None:
    difference, rows = diagnosis.difference, _rows(diagnosis)
    title = escape(f"{difference.name_a} (A) against {difference.name_b} (B)")
    table = Lines(title=title, title_justify="left", caption_justify="left")
    begin = 0 if len({row[0] for row in rows}) > 1 else 1  # a single step has no column
    for name in COLUMNS[begin:]:
        right = name in ("tensors", "error", "limit")
        table.add_column(name, justify="right" if right else "left",
                         overflow="fold" if name == "worst tensor" else "ellipsis")  # fmt: skip
    for row in rows:
        table.add_row(*map(escape, row[begin:-1]), f"[{COLORS[row[-1]]}]{row[-1]}[/]")
    table.caption = f"limit: {ASSUMED:g} units in the last place"
    show_table(table, console)


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
            share = f"{residual / cause.difference:.0e} of the difference" if cause.difference else (
                "nothing left")  # fmt: skip
            console.print(f"    {side}  {escape(words)}   [dim]recomputed to {share}[/]")
        if cause.advice:
            console.print(f"    change: {escape(cause.advice)}")


def _print_verdict(diagnosis: Diagnosis, console: Console) -> None:
    """Print what was not compared, and the verdict."""
    difference, but_for = diagnosis.difference, diagnosis.but_for
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
    if difference.unseen:
        console.print(f"[bold yellow]UNCERTIFIED[/]: {difference.unseen}")
    if difference.left_out:
        agree = f"agree in the {difference.tensors} tensors compared"
        console.print(f"[bold yellow]INCOMPLETE[/]: {names} {agree}")
    equal, accepted = difference.verdict_but_for_differences == "EQUAL", diagnosis.is_accepted
    if but_for:
        color = "green" if accepted and equal else "yellow"
        console.print(f"[bold {color}]EQUAL but for: {', '.join(but_for)}[/]")
        hint = (
            f"; exit status 1, or 0 with --accept {','.join(but_for)}" if equal and not accepted else ""
        )
        console.print(f"  {names}{hint}")
    elif equal:
        console.print(f"[bold green]EQUAL[/]: {names}, to rounding")


def report_of_diagnosis(diagnosis: Diagnosis) -> Report:
    """Make the report on two recordings."""
    difference, nothing = diagnosis.difference, PlaceSide("", ())
    findings: list[Finding] = []
    for place in diagnosis.places:
        compared = place.verdict.compared
        lines = [finding_at(each, "error") for each in compared.places] if compared else []
        findings += lines or [_finding(place, {*diagnosis.accepted})]
    for line in (*difference.left_out, *difference.b_alone):
        stage, _, rest = line.partition(": ")
        message = f"not compared: {stage}"
        findings.append(Finding("not-compared", "warning", message, nothing, nothing, details=(rest,)))
    for flag in difference.uncertified:
        message = f"float32 products ran at reduced precision: {flag}"
        findings.append(Finding("reduced-precision", "warning", message, nothing, nothing))
    if difference.unseen:
        findings.append(Finding("unseen", "warning", difference.unseen, nothing, nothing))
    summary = f"{difference.tensors} pairs of tensors compared"
    summary += f"; equal but for: {', '.join(diagnosis.but_for)}" if diagnosis.but_for else ""
    table = Table(COLUMNS, tuple(_rows(diagnosis)))
    return Report("diff", difference.name_a, difference.name_b, diagnosis.verdict, summary,
                  tuple(findings), table, {}, _own(diagnosis))  # fmt: skip


def _finding(place: PlaceKind, accepted: set[str]) -> Finding:
    first, verdict = place.divergences[0], place.verdict
    # what is a way of the frameworks, or accepted, explains the least of a place with other causes
    cause = min(verdict.causes, key=lambda each: each.name in accepted | CONVENTIONS, default=None)
    level: Level = "note" if cause and {each.name for each in verdict.causes} <= accepted else "error"
    details: tuple[str, ...] = (verdict.unknown,) if verdict.unknown else ()
    if cause is not None:
        share = [each / cause.difference if cause.difference else 0.0
                 for each in (cause.residual_a, cause.residual_b)]  # fmt: skip
        message = f"recomputed to {share[0]:.0e} of the difference in A, {share[1]:.0e} in B"
        details = (message, *((f"change: {cause.advice}",) if cause.advice else ()))
    rule = "unknown-cause" if verdict.unknown else f"{first.stage}-differs".replace(" ", "-")
    return Finding(
        rule=cause.name if cause else rule,
        level=level,
        message=(f"{cause.name}: " if cause else "") + f"{first} ({first.stage})",
        a=PlaceSide(cause.a if cause else "", (), first.where),
        b=PlaceSide(cause.b if cause else "", (), first.where_b),
        error=first.judged.error,
        limit=first.judged.limit,
        details=details,
        times=len(place.divergences),
    )


def _own(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the fields that only reports on recordings have; docs/verifying.md describes them."""
    difference = diagnosis.difference
    return {
        "version": JSON_VERSION,
        "equal": difference.equal or diagnosis.is_accepted,
        "but_for": list(diagnosis.but_for),
        "accepted": list(diagnosis.accepted),
        "causes": [cause.to_dict() for cause in diagnosis.causes],
        "unknown": diagnosis.unknown,
        "uncertified": list(difference.uncertified),
        "left_out": list(difference.left_out),
        "b_alone": list(difference.b_alone),
        "first": None if difference.first is None else _divergence(difference.first),
        "places": [
            {
                "where": [each.where for each in place.divergences],
                "stage": place.divergences[0].stage,
                "what": str(place.divergences[0]),
                **place.verdict.to_dict(),
            }
            for place in diagnosis.places
        ],
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
        "names": {name: list(each.names) for name, each in difference.counterparts.items()},
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
