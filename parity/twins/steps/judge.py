"""One step of both twins from the same state, judged tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from parity.twins.judge import beside
from parity.measure.invisible import Sight
from parity.measure.tolerance import FEW, FLOAT64, RATIO, STEP_LIMITS, epsilon, relative_error
from parity.runs.state import Arrays, TrainingState
from parity.twins.steps.trainer import Taken

CLEAR = 16.0
"""Size of a direction, in units of its rounding, from which on it is one."""


class Outcome(NamedTuple):
    """One step of one twin."""

    before: TrainingState
    taken: Taken
    after: TrainingState


@dataclass(frozen=True)
class StepVerdict:
    """How one tensor fared in one step."""

    level: str
    """``loss``, ``gradients``, a moment, ``parameters`` or ``ema``."""
    step: int
    """Counted from 1."""
    name: str
    jax_error: float
    """float64: relative difference of the twins; else the JAX twin's distance to its own float64
    step."""
    torch_error: float
    """float64: the same difference; else the PyTorch twin's distance to its own float64 step."""
    limit: float
    """What the larger error may be."""
    origin: str
    """Where the limit comes from."""

    @property
    def error(self) -> float:
        """The larger error."""
        return max(self.jax_error, self.torch_error)

    @property
    def score(self) -> float:
        """The larger error over its limit; above 1 is a failure."""
        return 0.0 if self.error == 0.0 else self.error / self.limit

    @property
    def passed(self) -> bool:
        """Whether the tensor is within its limit."""
        return self.score <= 1.0


def judge_float64(sight: Sight, jax: Outcome, torch: Outcome) -> Iterator[StepVerdict]:
    """The twins' difference, every tensor to rounding."""
    for level in _levels(jax):
        a, b = _tensors(level, jax, sight), _tensors(level, torch, sight)
        for name in a:
            error = relative_error(b[name], a[name], _beside(level, name, a))
            yield StepVerdict(level, jax.after.step, name, error, error, FLOAT64, "rounding")


def judge_narrow(
    sight: Sight,
    dtype: str,
    jax: Outcome,
    torch: Outcome,
    jax64: Outcome,
    torch64: Outcome,
) -> Iterator[StepVerdict]:
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
                relative_error(made[name], made64[name], _beside(level, name, made64)),
                relative_error(other[name], other64[name], _beside(level, name, other64)),
            )
            for name in made
        }
        typical = min(median(pair[side] for pair in pairs.values()) for side in (0, 1))
        for name, errors in pairs.items():
            grain = epsilon(dtype) * (2.0 if level == "exp_avg_sq" else 1.0)  # a square's is twice
            if level in ("parameters", "ema"):
                size = _size(made64[name])
                stored = _size(_tensors(level, jax64, sight, clear)[name])
                grain = max(grain, epsilon("float32") * stored / size if size else math.inf)
                apart = max((made[name] - made64[name], other[name] - other64[name]), key=_size)
                numbers = _participating(apart)
            else:
                numbers = made[name].size
            luck = max(1.0, math.sqrt(FEW / max(numbers, 1)))
            by_twin = RATIO * max(min(errors), luck * grain, typical)
            bound = STEP_LIMITS[dtype][level]
            limit = min(bound * grain, by_twin)
            origin = f"{RATIO:g} x twin" if by_twin < bound * grain else f"{bound:g} eps"
            yield StepVerdict(level, jax.after.step, name, *errors, limit, origin)


def _levels(outcome: Outcome) -> list[str]:
    return ["loss", "gradients", *outcome.after.moments, "parameters"] + (
        [] if outcome.after.ema is None else ["ema"]
    )


def _size(values: np.ndarray) -> float:
    return float(np.linalg.norm(values))


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
    if level not in ("parameters", "ema"):
        return arrays
    seen = {name: sight.seen(name, value) for name, value in arrays.items()}
    if clear is not None:
        seen = {name: value[sight.seen(name, clear[name])] for name, value in seen.items()}
    return {name: value for name, value in seen.items() if value.size}


def _changes(level: str, outcome: Outcome, sight: Sight, clear: Mapping[str, np.ndarray]) -> Arrays:
    after = _tensors(level, outcome, sight, clear)
    if level not in ("parameters", "ema"):
        return after
    before = _tensors(level, outcome._replace(after=outcome.before), sight, clear)
    return {name: value.astype(np.float64) - before[name] for name, value in after.items()}


def _beside(level: str, name: str, arrays: Arrays) -> np.ndarray | None:
    other = beside(name) if level not in ("loss", "parameters", "ema") else None
    return None if other is None else arrays[other]
