"""Verdicts on two things that were compared: one vocabulary for commands, certificates and reports."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["EQUAL", "DIFFERENT", "INCOMPLETE", "UNCERTIFIED"]
"""EQUAL: all of A was compared and equals B up to rounding. INCOMPLETE: what was compared is equal,
but a part of A has no counterpart. UNCERTIFIED: all is equal, at a precision that proves nothing."""


def status(verdict: Verdict) -> int:
    """Return a comparing command's exit status: 0 for EQUAL only; 2 is for inputs it cannot compare."""
    return 0 if verdict == "EQUAL" else 1
