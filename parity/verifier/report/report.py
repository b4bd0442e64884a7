"""The report of `parity diff`, in one form for programs and for recordings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from parity.measure.verdict import Verdict
from parity.verifier.report.sides import PlaceSide

SCHEMA = "parity.report/1"
"""Version of the JSON; within a version fields are added, never renamed or removed."""

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One finding of a comparison."""

    rule: str
    """Kind of finding as a slug: the cause if one is known, else the kind of place."""
    level: Level
    message: str
    """One sentence."""
    a: PlaceSide
    b: PlaceSide
    """Formula, lines of source and module of both sides; each may be empty."""
    error: float | None = None
    """Relative error, in the norm; None if nothing was measured."""
    limit: float | None = None
    """Relative error that rounding explains."""
    details: tuple[str, ...] = ()
    """Further sentences: the evidence, what to change."""
    times: int = 1
    """Number of places in B."""


@dataclass(frozen=True)
class Table:
    """A table of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """The findings of a command, with the verdict."""

    command: str
    """Always ``diff``."""
    a: str
    b: str
    """The user's names of the two sides."""
    verdict: Verdict
    summary: str
    """How much was compared, as a phrase."""
    findings: tuple[Finding, ...] = ()
    table: Table | None = None
    legend: dict[str, str] = field(default_factory=dict)
    """Meaning of the letters in formulas."""
    own: dict[str, Any] = field(default_factory=dict)
    """Fields that only reports of programs, or only those of recordings, have."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data; docs/reports.md describes every field."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "a": self.a,
            "b": self.b,
            "verdict": self.verdict,
            "summary": self.summary,
            "findings": [_finding(each) for each in self.findings],
            **{key: value for key, value in self.own.items() if key not in ("schema", "a", "b")},
        }


def _finding(each: Finding) -> dict[str, Any]:
    fields = asdict(each)
    return fields | {"a": _part(each.a), "b": _part(each.b), "details": list(each.details)}


def _part(part: PlaceSide) -> dict[str, Any]:
    return asdict(part) | {"lines": [asdict(line) for line in part.lines]}
