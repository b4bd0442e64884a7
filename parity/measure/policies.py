"""What an error may be: the policies by which limits are set, each with where its limit comes from.

*Rounding*: two float64 runs of the same function. *Own float64*: a narrower type, against a float64 run
of the same program and against the other twin's distance to its own. *Envelope*: any two programs,
against what one unit in the last place of parameters and inputs does to one of them. *Shadows*: whole
training runs, against runs of the same trainer that began a rounding error away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parity.measure.tolerance import ASSUMED, FACTOR, FEW, FLOAT64, RATIO, SHADOW


class Limit(NamedTuple):
    """What an error may be, and why."""

    value: float
    origin: str


BITS = Limit(0.0, "bit for bit")
"""Of parameters: both sides were given the same."""
ABSENT = Limit(0.0, "in one twin only")
"""Of a tensor that the other side does not have."""
ROUNDING = Limit(FLOAT64, "rounding")
"""Of the twins' difference in float64."""


def own_float64(
    errors: Sequence[float], *, bound: float, grain: float, numbers: float, floor: float = 0.0
) -> Limit:
    """Of each twin's distance to its own float64 run; see `parity.measure.tolerance`.

    Args:
        errors: both distances.
        bound: the largest, in grains.
        grain: the epsilon of the type, or what else is not told apart.
        numbers: how many make the error; in few, one can be right by luck.
        floor: what a distance counts as at least when the other is held against it.
    """
    luck = max(1.0, math.sqrt(FEW / max(numbers, 1)))
    by_twin = RATIO * max(min(errors), luck * grain, floor)
    if by_twin < bound * grain:
        return Limit(by_twin, f"{RATIO:g} x twin")
    return Limit(bound * grain, f"{bound:g} eps")


def envelope(moved: float, grain: float) -> Limit:
    """Of two programs' difference, given how far a nudge by one unit in the last place moves one."""
    return Limit(FACTOR * max(moved, grain), f"{FACTOR:g} x nudge")


def assumed(grain: float, steps: int, carried: float) -> Limit:
    """The same where nothing was nudged.

    Args:
        steps: training steps so far, this one included.
        carried: how far apart the steps before left what this one starts from.
    """
    return Limit(ASSUMED * grain * steps + carried, f"{ASSUMED:g} eps")


def shadow_limits(distances: Sequence[Sequence[float]]) -> list[float]:
    """Of two runs' distance after each step, given the distances of shadows after each step."""
    largest = np.maximum.accumulate(np.max(distances, axis=1))
    return [max(FLOAT64, SHADOW * float(each)) for each in largest]
