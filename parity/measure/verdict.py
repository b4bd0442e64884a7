"""Verdicts on two things that were compared: one vocabulary for commands, certificates and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Verdict = Literal["EQUAL", "UNCERTIFIED", "INCOMPLETE", "DIFFERENT"]
"""EQUAL: all of A was compared and is the same up to rounding. INCOMPLETE: what was compared is, but
something of A's was compared with nothing. UNCERTIFIED: all is, to a precision that says nothing."""


def status(verdict: Verdict) -> int:
    """Return a comparing command's exit status: 0 for EQUAL only; 2 is for inputs it cannot compare."""
    return 0 if verdict == "EQUAL" else 1


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """What is said of a whole, of whose parts these are said."""
    return max(verdicts, key=get_args(Verdict).index)
