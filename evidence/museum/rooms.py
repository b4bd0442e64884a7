"""All rooms of the museum, and how an exhibit is judged."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from evidence.museum.exhibits import EXHIBITS, Exhibit
from parity.verifier.locate import compare
from parity.verifier.report.comparison import Comparison

ROOMS = (
    "attention",
    "heads",
    "norms",
    "activations",
    "residuals",
    "positions",
    "rotary",
    "pixels",
    "loading",
    "training",
)


def exhibits() -> dict[str, Exhibit]:
    """Every exhibit by its name, room by room."""
    for room in ROOMS:
        importlib.import_module(f"evidence.museum.{room}")
    return EXHIBITS


@dataclass(frozen=True)
class ExhibitResult:
    """The verdict on an exhibit."""

    exhibit: Exhibit
    caught: bool
    placed: bool
    """Whether a line that is printed for the wrong side is one that is wrong."""
    said: tuple[str, ...]
    """The names that were given."""
    likely: tuple[bool, ...]
    """Whether the likely line is wrong, for each place that shows several lines, one of them wrong."""

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names that are not right."""
        return tuple(each for each in self.said if each not in self.exhibit.names)

    @property
    def named(self) -> bool:
        """Whether a name was given, and none was wrong."""
        return bool(self.said) and not self.wrong


def judge(exhibit: Exhibit) -> tuple[ExhibitResult, Comparison]:
    """Compare the right side of an exhibit with the wrong one."""
    right, wrong = exhibit.make()
    comparison = compare(right, wrong, gradients=exhibit.gradients)
    lines = {(line.file, line.line) for place in comparison.places for line in place.b.lines}
    names = (p.cause or ("parameter" if p.kind == "parameter" else "") for p in comparison.places)
    said = tuple(dict.fromkeys(name for name in names if name))
    caught = comparison.verdict == "DIFFERENT"
    likely = tuple(
        wrong[place.b.likely or 0]
        for place in comparison.places
        if len(wrong := [(line.file, line.line) in exhibit.lines for line in place.b.lines]) > 1
        and any(wrong)
    )
    return ExhibitResult(exhibit, caught, bool(lines & exhibit.lines), said, likely), comparison
