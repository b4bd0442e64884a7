"""The policies that set the limit of an error; each limit names the policy it comes from.

*Rounding*: two float64 runs of the same function. *Own float64*: a narrower type, against a float64 run
of the same program and against the other twin's distance to its own. *Assumed*: two recordings, against
so many units in the last place. *Shadows*: whole training runs, against runs of the same trainer that
began a rounding error away.

A limit that is a multiple of another run's error is finite: where that run is not, nothing but equality
passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parity.measure.tolerance import ASSUMED, FEW, FLOAT64, RATIO, SHADOW


class Limit(NamedTuple):
    """Largest error allowed, and the policy it comes from."""

    value: float
    origin: str


BITS = Limit(0.0, "bit for bit")
"""Limit for parameters: both sides were given the same."""
ABSENT = Limit(0.0, "in one twin only")
"""Limit for a tensor that the other side does not have."""
ROUNDING = Limit(FLOAT64, "rounding")
"""Limit for the twins' difference in float64."""
TWIN = f"{RATIO:g} x twin"
"""Origin of a limit that the other twin sets."""


def own_float64(
    errors: Sequence[float], *, bound: float, grain: float, numbers: float, floor: float = 0.0
) -> Limit:
    """Return the limit for the twins' distances to their float64 runs; see `parity.measure.tolerance`.

    Args:
        errors: both distances.
        bound: largest distance allowed, in grains.
        grain: the epsilon of the type, or another distance below which all distances count as equal.
        numbers: how many numbers make up the error; a few of them can be right by luck.
        floor: a distance of the better twin below this one counts as this one.
    """
    luck = max(1.0, math.sqrt(FEW / max(numbers, 1)))
    by_twin = RATIO * max(min(errors), luck * grain, floor)
    if by_twin < bound * grain:
        return Limit(by_twin, TWIN)
    return Limit(bound * grain, f"{bound:g} eps")


def assumed_limit(grain: float, steps: int, carried: float) -> Limit:
    """Return the limit for the difference of two recordings.

    Args:
        steps: training steps so far, this one included.
        carried: how far apart the previous steps left the values that this one starts from.
    """
    return Limit(ASSUMED * grain * steps + carried, f"{ASSUMED:g} eps")


def shadow_limits(distances: Sequence[Sequence[float]]) -> list[float]:
    """Return the limit for two runs' distance after each step, given the shadows' distances by step."""
    largest = np.maximum.accumulate(np.max(distances, axis=1))
    return [max(FLOAT64, SHADOW * float(each)) if np.isfinite(each) else 0.0 for each in largest]
