"""One step of both twins from the same state, judged tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from statistics import median

import numpy as np

from parity.measure.error import norm
from parity.measure.invisible import Sight
from parity.measure.judged import Judged
from parity.measure.policies import ROUNDING, own_float64
from parity.measure.tolerance import STEP_LIMITS, epsilon
from parity.runs.state import Arrays
from parity.twins.judge import error_of
from parity.twins.steps.outcome import Change, StepOutcome, VisibleOutcome

CLEAR = 16.0
"""Size above which a direction is clear, in units of its round-off."""


def judge_float64(sight: Sight, jax: StepOutcome, torch: StepOutcome) -> Iterator[Judged]:
    """Judge the twins' difference, every tensor to rounding."""
    a, b = VisibleOutcome(jax, sight), VisibleOutcome(torch, sight)
    for site in a.sites():
        yield Judged.by(ROUNDING, site, error_of(b, a, site))


def judge_narrow(
    sight: Sight,
    dtype: str,
    jax: StepOutcome,
    torch: StepOutcome,
    jax64: StepOutcome,
    torch64: StepOutcome,
) -> Iterator[Judged]:
    """Judge each twin's distance to its own float64 step: at most K epsilons of the type, and at
    most `RATIO` times the other's; see `parity.measure.tolerance`.

    Of parameters and averages the change made by the step is judged, in a grain no finer than that
    of the stored parameters. Where the direction is round-off, as at the first step of a number
    whose gradient is next to nothing, Adam makes a full step of it either way: such numbers are
    left out.
    """
    clear = _clear(jax, torch, jax64, torch64)
    own, own64, other, other64 = (Change(each, sight, clear) for each in (jax, jax64, torch, torch64))
    stored = VisibleOutcome(jax64, sight, clear)
    for level, sites in groupby(own.sites(), key=lambda site: site.level):
        pairs = {site: (error_of(own, own64, site), error_of(other, other64, site)) for site in sites}
        typical = min(median(pair[side] for pair in pairs.values()) for side in (0, 1))
        for site, errors in pairs.items():
            made, made64 = own.read(site), own64.read(site)
            grain = epsilon(dtype) * (2.0 if level == "exp_avg_sq" else 1.0)  # a square's is twice
            numbers = made.size
            if site.stage == "updated":
                size = norm(made64)
                coarse = epsilon("float32") * norm(stored.read(site))
                grain = max(grain, coarse / size if size else math.inf)
                numbers = _participating(
                    max((made - made64, other.read(site) - other64.read(site)), key=norm)
                )
            limit = own_float64(
                errors,
                bound=STEP_LIMITS[dtype][level],
                grain=grain,
                numbers=numbers,
                floor=typical,
            )
            yield Judged.by(limit, site, *errors)


def _participating(errors: np.ndarray) -> float:
    """Return how many numbers make an error: all if they are alike, one if one of them is all of it.

    Adam's division amplifies the rounding of numbers whose gradient is near its epsilon, which are few.
    """
    squares = np.square(errors, dtype=np.float64)
    total = float(squares.sum())
    return total**2 / float(np.square(squares).sum()) if total else errors.size


def _clear(
    jax: StepOutcome, torch: StepOutcome, jax64: StepOutcome, torch64: StepOutcome
) -> dict[str, np.ndarray]:
    """Return which numbers of each parameter move in a direction well above its round-off."""

    def direction(outcome: StepOutcome) -> Arrays:
        return next(iter(outcome.after.moments.values()), outcome.taken.gradients)

    masks = {}
    for name, exact in direction(jax64).items():
        distances = [
            np.abs(direction(own)[name].astype(np.float64) - direction(wide)[name])
            for own, wide in ((jax, jax64), (torch, torch64))
        ]
        noise = max(float(np.sqrt(np.square(each).mean())) for each in distances)
        masks[name] = np.abs(exact) > CLEAR * noise
    return masks
