"""A cause: one thing of B's that, exchanged for A's, makes its value A's; with an example of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Explanation = tuple[str, str]
"""Name of a cause, and what it is at a place, with numbers."""


@dataclass(frozen=True)
class Cause:
    """A cause that a place may be given.

    The example consists of two expressions over the names of `examples.py`. It is compared by a test,
    which demands this cause and no other.
    """

    name: str
    meaning: str
    """One sentence on what B does."""
    judge: Callable[..., Any]
    """Finds the cause of one place (`Explanation` or None), or of a search (places, explanations)."""
    a: str
    """Example of what is right."""
    b: str
    """Example of this cause."""

    @property
    def rule(self) -> str:
        """Name as a slug, as in reports."""
        return self.name.replace(" ", "-")
