"""The stability of a recipe, judged by its shadows: whether a rounding error stays small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.twins.steps.train_both import TypeResult

EDGE = 1e4
"""Growth of one step's rounding from which a recipe counts as at the edge of stability. Errors that only
add up grow by at most the number of steps."""
LOST = 1e-3
"""Distance of a shadow above which two runs have little more in common than their recipe."""


@dataclass(frozen=True)
class Stability:
    """How far a run amplifies a rounding error."""

    growth: float
    """Largest ratio of the farthest shadow's distance to the largest nudge before it."""
    lost_at: int | None
    """The first step, counted from 1, at which a shadow is farther than `LOST` from its run; None if
    none is."""
    steps: int

    @property
    def quiet(self) -> bool:
        """Whether rounding errors only add up."""
        return self.growth < max(EDGE, 10.0 * self.steps) and self.lost_at is None

    def sentence(self) -> str:
        """Return the verdict in words."""
        if self.quiet:
            return (
                f"quiet: in {self.steps} steps the error of one step grew {self.growth:.0f}-fold; whole"
                " runs can be compared"
            )
        grew = f"at the edge of stability: the error of one step grew {self.growth:.0e}-fold"
        if self.lost_at is None:
            return f"{grew}; a much longer run cannot be compared number by number"
        return (
            f"{grew}; from step {self.lost_at} on, one implementation differs from itself as much as"
            " from any other"
        )


def stability(walk: TypeResult) -> Stability:
    """Judge a run by the parameters of its shadows."""
    shadows = np.max(walk.curves["parameters"].shadows, axis=1)
    nudges = np.maximum.accumulate(np.maximum(walk.one_step, np.finfo(float).tiny))
    nudges = np.maximum(nudges, shadows[0])  # the first nudge is a unit in the last place
    beyond = np.flatnonzero(shadows > LOST)
    return Stability(
        float(np.max(shadows / nudges)), int(beyond[0]) + 1 if beyond.size else None, len(shadows)
    )
