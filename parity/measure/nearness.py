"""How near two values must be to count as the same, measured by nudging all leaves of both programs.

Each program runs once more with every leaf moved by one unit in the last place. Two values count as
the same if they differ by at most `FACTOR` times the larger of the two effects. The limit is never
below `LEAST`, and never above `MOST`: a nudge may change a value altogether, such as a choice of
experts.
"""

from __future__ import annotations

from typing import NamedTuple

from parity.measure.tolerance import FACTOR, FLOAT64, epsilon

_GRAIN = FACTOR * epsilon("float64")


class Nearness(NamedTuple):
    """Differences of a value, relative to its size, up to which they count as rounding."""

    means: float = _GRAIN
    """Limit for means of its numbers."""
    extremes: float = FLOAT64
    """Limit for its least and largest number, which may be ill-conditioned where the means are not."""
    norm: float = _GRAIN
    """Limit for the whole value, in the Euclidean norm."""

    def or_more(self, other: Nearness) -> Nearness:
        """Return the larger of two limits, field by field."""
        return Nearness(*map(max, self, other))


LEAST = Nearness()
CERTAIN = FACTOR * epsilon("float32")
"""Largest error at which outputs surely agree, where one side has a number in a smaller type than
the other."""
_FARTHEST = 1e-9
MOST = Nearness(means=_FARTHEST / 100, extremes=_FARTHEST, norm=_FARTHEST)
"""What rounding may do at most, however far a nudge moves a value; and up to where two arrays that were
not measured hold the same numbers.

The least mistake that must be seen is a number that one program holds in float32: it is off by an error
spread evenly over half a unit either way, 0.29 units or 3e-8 typically, and a sum of a thousand such
terms by a thirtieth of that, which is 1e-9. Means of ten thousand numbers, as a small layer has, move by
the hundredth part of what the numbers do.
"""


def nearness(means: float, extremes: float, norm: float) -> Nearness:
    """Return the limits for a value, given how far a nudge moved it.

    Args:
        means: how far its means moved, relative to its size.
        extremes: how far its least and its largest number moved, relative to the larger.
        norm: how far the whole value moved, ||moved - value|| / ||value||.
    """
    moved = Nearness(means, extremes, norm)
    return Nearness(
        *(min(max(FACTOR * each, low), high) for each, low, high in zip(moved, LEAST, MOST, strict=True))
    )
