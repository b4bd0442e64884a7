"""Verdicts on two things that were compared: one vocabulary for commands and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Verdict = Literal["EQUAL", "UNCERTIFIED", "INCOMPLETE", "DIFFERENT"]
"""EQUAL: all of A was compared and equals B up to rounding. INCOMPLETE: what was compared is equal, but
a part of A has no counterpart. UNCERTIFIED: all is equal, at a precision that proves nothing, or where
no difference could show."""


def status(verdict: Verdict) -> int:
    """Return a comparing command's exit status: 0 for EQUAL only; 2 is for inputs it cannot compare."""
    return 0 if verdict == "EQUAL" else 1


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a whole from the verdicts on its parts: the gravest of them."""
    return max(verdicts, key=get_args(Verdict).index)
