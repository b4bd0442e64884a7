"""One step of both twins from the same state, judged tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

import numpy as np

from parity.measure.error import norm, relative_error
from parity.measure.invisible import Sight
from parity.measure.judged import Judged
from parity.measure.policies import ROUNDING, own_float64
from parity.measure.site import AVERAGE, Site
from parity.measure.tolerance import STEP_LIMITS, epsilon
from parity.runs.state import Arrays, TrainingState
from parity.twins.judge import beside
from parity.twins.steps.trainer import Taken

CLEAR = 16.0
"""Size of a direction, in units of its rounding, from which on it is one."""
CHANGED = ("parameters", AVERAGE)
"""The levels of which the change is judged."""


class Outcome(NamedTuple):
    """One step of one twin."""

    before: TrainingState
    taken: Taken
    after: TrainingState


def judge_float64(sight: Sight, jax: Outcome, torch: Outcome) -> Iterator[Judged]:
    """The twins' difference, every tensor to rounding."""
    for level in _levels(jax):
        a, b = _tensors(level, jax, sight), _tensors(level, torch, sight)
        for name in a:
            error = relative_error(b[name], a[name], beside=_beside(level, name, a))
            yield Judged.by(ROUNDING, _site(level, jax.after.step, name), error)


def judge_narrow(
    sight: Sight,
    dtype: str,
    jax: Outcome,
    torch: Outcome,
    jax64: Outcome,
    torch64: Outcome,
) -> Iterator[Judged]:
    """Each twin's distance to its own float64 step: within K epsilons of the type, and not farther than
    `RATIO` times the other's; see `parity.measure.tolerance`.

    Of parameters and averages the change is judged, which is all that the step made; it cannot be finer
    than the parameters are stored. Where the direction is rounding noise, as at the first step of a
    number whose gradient is next to nothing, Adam makes a full step of it either way: that is left out.
    """
    clear = _clear(jax, torch, jax64, torch64)
    for level in _levels(jax):
        made, made64, other, other64 = (
            _changes(level, each, sight, clear) for each in (jax, jax64, torch, torch64)
        )
        pairs = {
            name: (
                relative_error(made[name], made64[name], beside=_beside(level, name, made64)),
                relative_error(other[name], other64[name], beside=_beside(level, name, other64)),
            )
            for name in made
        }
        typical = min(median(pair[side] for pair in pairs.values()) for side in (0, 1))
        for name, errors in pairs.items():
            grain = epsilon(dtype) * (2.0 if level == "exp_avg_sq" else 1.0)  # a square's is twice
            numbers = made[name].size
            if level in CHANGED:
                size = norm(made64[name])
                stored = norm(_tensors(level, jax64, sight, clear)[name])
                grain = max(grain, epsilon("float32") * stored / size if size else math.inf)
                apart = max((made[name] - made64[name], other[name] - other64[name]), key=norm)
                numbers = _participating(apart)
            limit = own_float64(
                errors,
                bound=STEP_LIMITS[dtype][level],
                grain=grain,
                numbers=numbers,
                floor=typical,
            )
            yield Judged.by(limit, _site(level, jax.after.step, name), *errors)


def _site(level: str, step: int, name: str) -> Site:
    """Where a tensor of a step is seen, steps counted from 1."""
    if level == "loss":
        return Site(step, "loss", name)
    if level == "gradients":
        return Site(step, "gradients", name)
    if level in CHANGED:
        return Site(step, "updated", name, AVERAGE if level == AVERAGE else "")
    return Site(step, "moments", name, level)


def _levels(outcome: Outcome) -> list[str]:
    return ["loss", "gradients", *outcome.after.moments, "parameters"] + (
        [] if outcome.after.ema is None else ["ema"]
    )


def _participating(errors: np.ndarray) -> float:
    """How many numbers make an error: all if they are alike, one if one of them is all of it.

    Adam's division amplifies the rounding of numbers whose gradient is near its epsilon, which are few.
    """
    squares = np.square(errors, dtype=np.float64)
    total = float(squares.sum())
    return total**2 / float(np.square(squares).sum()) if total else errors.size


def _clear(jax: Outcome, torch: Outcome, jax64: Outcome, torch64: Outcome) -> dict[str, np.ndarray]:
    """Which numbers of each parameter move in a direction that is well above the rounding of it."""

    def direction(outcome: Outcome) -> Arrays:
        return next(iter(outcome.after.moments.values()), outcome.taken.gradients)

    found = {}
    for name, exact in direction(jax64).items():
        distances = [
            np.abs(direction(own)[name].astype(np.float64) - direction(wide)[name])
            for own, wide in ((jax, jax64), (torch, torch64))
        ]
        noise = max(float(np.sqrt(np.square(each).mean())) for each in distances)
        found[name] = np.abs(exact) > CLEAR * noise
    return found


def _tensors(
    level: str, outcome: Outcome, sight: Sight, clear: Mapping[str, np.ndarray] | None = None
) -> Arrays:
    """Gradients and moments whole, on whose scale the noise in what the loss cannot see is nothing;
    parameters without it, and where their direction is `clear`."""
    if level == "loss":
        return {"mean": np.array(outcome.taken.loss)}
    if level == "gradients":
        return outcome.taken.gradients
    arrays = outcome.after.parts()[level]
    if level not in CHANGED:
        return arrays
    seen = {name: sight.seen(name, value) for name, value in arrays.items()}
    if clear is not None:
        seen = {name: value[sight.seen(name, clear[name])] for name, value in seen.items()}
    return {name: value for name, value in seen.items() if value.size}


def _changes(level: str, outcome: Outcome, sight: Sight, clear: Mapping[str, np.ndarray]) -> Arrays:
    after = _tensors(level, outcome, sight, clear)
    if level not in CHANGED:
        return after
    before = _tensors(level, outcome._replace(after=outcome.before), sight, clear)
    return {name: value.astype(np.float64) - before[name] for name, value in after.items()}


def _beside(level: str, name: str, arrays: Arrays) -> np.ndarray | None:
    other = beside(name) if level not in ("loss", *CHANGED) else None
    return None if other is None else arrays[other]
