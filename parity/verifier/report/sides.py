"""The two sides of a place as values: lines of source, a formula, what the formula reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of source."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class Operand:
    """A value that a formula reads."""

    letter: str
    """What stands for it in the formula: a letter, or the name of a parameter or an input."""
    line: Line | None
    """The line that made it; None of a leaf."""
    shape: tuple[int, ...]
    module: str
    relation: str
    """How it lies to the other side's value, in the words of `operands.py`."""


@dataclass(frozen=True)
class Term:
    """A term of the sums that both sides of a place are."""

    a: str
    """A's term as a formula; empty where A has none."""
    b: str
    relation: str
    """How B's term lies to A's, in the words of `operands.py`."""


@dataclass(frozen=True)
class PlaceSide:
    """One side of a place."""

    formula: str
    lines: tuple[Line, ...]
    """Lines of the operations in the formula, in the order in which they run."""
    module: str = ""
    operands: tuple[Operand, ...] = ()
    likely: int | None = None
    """Of B: which of the lines most likely holds the difference; None where there is no choice made."""

    @property
    def where(self) -> str:
        """The first line, and how many more there are."""
        if len(self.lines) == 0:
            return ""
        more = f" (+{len(self.lines) - 1})" if len(self.lines) > 1 else ""
        return f"{self.lines[0]}{more}"
