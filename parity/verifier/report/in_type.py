"""Result of running two programs in a smaller type, each beside its own float64 run."""

from __future__ import annotations

from dataclasses import dataclass

from parity.measure.verdict import Verdict
from parity.verifier.report.comparison import Comparison


@dataclass(frozen=True)
class InType:
    """Result of running two programs, equal in float64, in a smaller type."""

    dtype: str
    errors: tuple[float, float]
    """Largest relative distance of an output from the same output in float64, for A and for B."""
    apart: Comparison | None
    """Comparison of the side that is too far off with its own float64 run; None if neither side is."""
    side: str = ""

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two in this type."""
        return "DIFFERENT" if self.side else "EQUAL"

    def to_text(self) -> list[str]:
        """Return the result as lines of text."""
        a, b = self.errors
        lines = [f"in {self.dtype}: A is {a:.2g} from itself in float64, B {b:.2g}"]
        if self.apart is not None and self.apart.places:
            lines += ["", f"{self.side} in float64 (A) and in {self.dtype} (B):"]
            lines += self.apart.places_to_text()
        elif self.side:
            lines += [
                f"{self.side} is the same function in both types, and loses digits on these numbers"
            ]
        return lines
