"""One form for what `parity diff` found, of programs and of recordings."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from parity.measure.verdict import Verdict
from parity.verifier.operations.comparison import Line, Part

SCHEMA = "parity.report/1"
"""Of the JSON: within a version fields are added, never renamed or removed."""

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that a comparison found."""

    rule: str
    """What kind of thing, as a slug: the cause where one is known, else where it was seen."""
    level: Level
    message: str
    """One sentence."""
    a: Part
    b: Part
    """Formula, lines of source, module; each may be empty."""
    error: float | None = None
    """Relative, in the norm."""
    limit: float | None = None
    """What rounding explains of it."""
    details: tuple[str, ...] = ()
    """Further sentences: the evidence, what to change."""
    times: int = 1
    """At how many places of B."""


@dataclass(frozen=True)
class Table:
    """Rows of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """What a command found."""

    command: str
    """diff."""
    a: str
    b: str
    """What the user calls the two sides."""
    verdict: Verdict
    summary: str
    """How much was compared."""
    findings: tuple[Finding, ...] = ()
    table: Table | None = None
    legend: dict[str, str] = field(default_factory=dict)
    """What the letters of the formulas stand for."""
    own: dict[str, Any] = field(default_factory=dict)
    """The fields of this command alone."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data; docs/reports.md describes every field."""
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
    found = asdict(each)
    return found | {"a": _part(each.a), "b": _part(each.b), "details": list(each.details)}


def _part(part: Part) -> dict[str, Any]:
    return asdict(part) | {"lines": [asdict(line) for line in part.lines]}


def line_of_name(name: str) -> tuple[Line, ...]:
    """The line that defines the function that ``file.py:function`` or ``module:function`` names; of
    other names, none."""
    where, _, function = name.rpartition(":")
    if not where or not function.isidentifier():
        return ()
    file = where
    if not where.endswith(".py"):
        try:
            found = find_spec(where)
        except (ImportError, ValueError):
            return ()
        file = (found.origin if found else None) or ""
    path = Path(file)
    if not path.is_file():
        return ()
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else [
            each.id for each in getattr(node, "targets", ()) if isinstance(each, ast.Name)
        ]  # fmt: skip
        if function in names:
            return (Line(str(path), node.lineno, function, text.splitlines()[node.lineno - 1].strip()),)
    return ()
