"""A report as SARIF 2.1.0, which GitHub, GitLab and editors show beside the lines of code.

Format: OASIS, Static Analysis Results Interchange Format 2.1.0,
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from parity.measure.shown import finite
from parity.porting.provenance import versions
from parity.verifier.report.report import Finding, Report
from parity.verifier.report.sides import Line, PlaceSide

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""Name of the working directory, relative to which files below it are given."""


def to_sarif(report: Report, root: Path | None = None) -> dict[str, Any]:
    """Return the report as a SARIF log of one run.

    Args:
        report: the findings.
        root: folder that paths are relative to; the working directory by default.
    """
    root = (root or Path.cwd()).resolve()
    rules = list(dict.fromkeys(each.rule for each in report.findings))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "parity",
                        "semanticVersion": versions().get("vit-parity", "0.0.0"),
                        "rules": [_rule(each) for each in rules],
                    }
                },
                "automationDetails": {"id": f"parity/{report.command}/"},
                "originalUriBaseIds": {ROOT: {"uri": root.as_uri() + "/"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": True}],
                "results": [_result(each, report, rules, root) for each in report.findings],
                "properties": {
                    "a": report.a,
                    "b": report.b,
                    "verdict": report.verdict,
                    "summary": report.summary,
                },
            }
        ],
    }


def _rule(name: str) -> dict[str, Any]:
    words = name.replace("-", " ")
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in words.split()),
        "shortDescription": {"text": words},
    }


def _result(each: Finding, report: Report, rules: list[str], root: Path) -> dict[str, Any]:
    size = "" if each.error is None else f" Relative error {each.error:.2g}."
    formulas = "".join(
        f" {name}: {part.formula}." for name, part in (("A", each.a), ("B", each.b)) if part.formula
    )
    result: dict[str, Any] = {
        "ruleId": each.rule,
        "ruleIndex": rules.index(each.rule),
        "level": each.level,
        "message": {"text": f"{each.message}.{formulas}{size}"},
        "partialFingerprints": {"parity/1": _identity(each)},
        "properties": {"error": finite(each.error), "limit": finite(each.limit), "times": each.times},
    }
    if locations := _locations(each.b, report.b, root):
        result["locations"] = locations
    related = _locations(each.a, report.a, root)
    for number, location in enumerate(related):
        location["id"] = number
        location["message"] = {"text": f"{report.a} (A)"}
    return result | ({"relatedLocations": related} if related else {})


def _locations(part: PlaceSide, side: str, root: Path) -> list[dict[str, Any]]:
    module = part.module or side
    logical = [{"fullyQualifiedName": module, "kind": "module"}]
    first = part.lines[part.likely : part.likely + 1] if part.likely is not None else ()
    lines = dict.fromkeys([*first, *part.lines])
    locations = [
        {"physicalLocation": _physical(line, root), "logicalLocations": logical} for line in lines
    ]
    return locations or ([{"logicalLocations": logical}] if part.module else [])


def _physical(line: Line, root: Path) -> dict[str, Any]:
    path = Path(line.file).resolve()
    if path.is_relative_to(root):
        file = {"uri": _quoted(path.relative_to(root)), "uriBaseId": ROOT}
    else:
        file = {"uri": path.as_uri()}
    region: dict[str, Any] = {"startLine": max(line.line, 1)}
    if line.text:
        region["snippet"] = {"text": line.text}
    return {"artifactLocation": file, "region": region}


def _quoted(path: Path) -> str:
    return quote(path.as_posix())


def _identity(each: Finding) -> str:
    """Return a hash of rule, formulas and text of lines, which stays when lines are inserted above."""
    texts = [line.text for part in (each.a, each.b) for line in part.lines]
    parts = [each.rule, each.a.formula, each.b.formula, each.a.module, each.b.module, *texts]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
