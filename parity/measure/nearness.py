"""How near two values must be to count as the same, from what a nudge of all leaves does to them.

Each of two programs runs once more with every leaf one unit in the last place away. Rounding may do
`FACTOR` times what that did to a value, on the worse side; never less than so many units, and never
more than the caps, which are for values that a nudge changes altogether, such as a choice of experts.
"""

from __future__ import annotations

from typing import NamedTuple

from parity.measure.tolerance import FACTOR, epsilon

_GRAIN = FACTOR * epsilon("float64")


class Nearness(NamedTuple):
    """What rounding may do to a value, relative to its size."""

    means: float = _GRAIN
    """To means of its numbers."""
    extremes: float = 1e-12
    """To its least and its largest number, which may be ill-conditioned where the means are not."""
    norm: float = _GRAIN
    """To all of it, in the norm."""

    def or_more(self, other: Nearness) -> Nearness:
        """What the worse of two values allows for."""
        return Nearness(*map(max, self, other))


LEAST = Nearness()
CERTAIN = FACTOR * epsilon("float32")
"""Up to which error outputs are the same, where one side has a number in a smaller type than the
other."""
MOST = Nearness(means=1e-11, extremes=1e-9, norm=1e-9)


def nearness(means: float, extremes: float, norm: float) -> Nearness:
    """From how far a nudge moved a value.

    Args:
        means: its means, relative to its size.
        extremes: its least and its largest number, relative to the larger.
        norm: all of it, ||moved - value|| / ||value||.
    """
    moved = Nearness(means, extremes, norm)
    return Nearness(
        *(min(max(FACTOR * each, low), high) for each, low, high in zip(moved, LEAST, MOST, strict=True))
    )
