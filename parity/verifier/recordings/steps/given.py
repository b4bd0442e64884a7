"""The gradients that an optimiser may have been given, as its moments tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.measure.error import relative_error
from parity.verifier.recordings.steps.clipped import ALIKE, TORCH, in_parts
from parity.verifier.recordings.steps.fitting import JoinedLeaves, digits, snap, text, two_slopes
from parity.verifier.recordings.steps.noise import TINY
from parity.verifier.recordings.steps.sides import RecordedSide

BETAS = (0.9, 0.95, 0.8, 0.85, 0.99)
"""Usual values of beta1, for a first update, where beta1 and an unrecorded clipping look the same."""
EPSILONS = (1e-8, 1e-6, 1e-7, 1e-5, 1e-10, 1e-12, 1e-16, 1e-15, 1e-4, 1e-3)
"""Epsilons that may be added in a denominator, the most usual first."""
SEEN = 1e-5
"""Relative precision at which a clipped norm is printed if it is not a short number: of a norm summed in
float32, whose 1e-7 grows by the root of ten thousand numbers."""
FIRST, SECOND, BUFFER = "exp_avg", "exp_avg_sq", "momentum_buffer"


class MomentsUpdate(NamedTuple):
    """Inputs and results of the moments' update."""

    flat: JoinedLeaves
    before: dict[str, np.ndarray]
    """Moments before the step, by kind, each (N,)."""
    after: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]
    parameters: np.ndarray
    eps: float


class GivenGradient(NamedTuple):
    """A gradient that the optimiser may have been given."""

    choices: dict[str, str]
    gradient: np.ndarray


def sources(side: RecordedSide, given: MomentsUpdate) -> Iterator[GivenGradient]:
    """Yield the gradients that the optimiser may have been given, clipped or not."""
    segment, flat = side.segment, given.flat
    if segment.clipped_by_both:
        this, before = (flat.join(each) for each in (segment.clipped, segment.clipped_before))
        for when, gradient in (("this step", this), ("the step before", before)):
            if gradient is not None:
                choices = {"step of the gradient": when, "gradient": "as the optimiser was given it"}
                yield GivenGradient(choices, gradient)
        plain = flat.join(segment.gradients)
        if this is not None and plain is not None and not np.array_equal(plain, this):
            yield GivenGradient(
                {"step of the gradient": "this step", "gradient": "before clipping"}, plain
            )
        return
    for when, gradients, norms in side.gradients:
        plain = flat.join(gradients)
        if plain is not None and (when["step of the gradient"] == "this step" or plain.any()):
            for choices, gradient in _clipped(given, plain, norms, flat.join(segment.clipped)):
                yield GivenGradient(when | choices, gradient)


def _clipped(
    given: MomentsUpdate, plain: np.ndarray, norms: Mapping[str, float], recorded: np.ndarray | None
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Yield a gradient as it is, and clipped in every usual way that the moments allow.

    Args:
        recorded: what the optimiser was given, if this program alone recorded it.
    """
    yield {"gradient": "not clipped"}, plain
    if recorded is not None and np.array_equal(plain, recorded):
        return
    near, named = 1e3 * given.eps, False
    for choices, gradient in _limited(given, plain, norms):
        if recorded is None or relative_error(gradient, recorded) <= near:
            named = True
            yield choices, gradient
    if recorded is not None and not named:
        scale = float(plain @ recorded) / float(plain @ plain)
        if relative_error(scale * plain, recorded) <= near:
            norm = float(np.sqrt(sum(each**2 for each in norms.values())))
            yield (
                {"gradient": f"clipped to norm {text(snap(scale * norm, SEEN * scale * norm))}"},
                recorded,
            )


def _limited(
    given: MomentsUpdate, plain: np.ndarray, norms: Mapping[str, float]
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    eps, norm = given.eps, float(np.sqrt(sum(each**2 for each in norms.values())))
    if not {FIRST, BUFFER} & given.after.keys():
        return
    for scale, off in _scales(given, plain):
        for added in (0.0, TORCH) if 0 < scale < 1 else ():
            whole = norm + added
            most = snap(scale * whole, (32 * eps * scale + off) * whole)
            if most and digits(most) <= 3:
                choices = {"gradient": f"clipped to norm {text(most)}", "added to the norm": text(added)}
                yield choices, plain * (most / whole)
    kind = FIRST if FIRST in given.after else BUFFER
    before, after, bound = given.before[kind], given.after[kind], given.bounds[kind]
    for weight in _weights(given):
        old = (1 - weight if kind == FIRST else 1.0) * before
        made = (after - old) / weight
        loose = max(eps, float(np.median(bound)) / weight / max(float(np.abs(made).max()), TINY))
        for choices, value in in_parts(given.flat, plain, made, norms, loose):
            limit = choices.get("max norm") or choices["max value"]
            extra = {k: v for k, v in choices.items() if k == "added to the norm"}
            yield {"gradient": f"{choices['clipping']} clipped to {limit}", **extra}, value


def _weights(given: MomentsUpdate) -> list[float]:
    """Return the weights that the new gradient may have in the first moment."""
    if FIRST not in given.after:
        return [] if given.before[BUFFER].any() else [1.0]
    return [1 - beta for beta in BETAS]


def _scales(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield the factors by which the gradient may have been multiplied before it reached the moments,
    with their uncertainties."""
    kind = FIRST if FIRST in given.after else BUFFER
    before, after, bound = given.before[kind], given.after[kind], given.bounds[kind]
    out = aside(given, bound)
    if not before.any():
        options = [(1 - beta, after) for beta in BETAS] if kind == FIRST else [(1.0, after)]
    else:
        both = two_slopes((out(before), out(gradient)), out(after), bound, given.eps)
        # two fits at once are loose where moment and gradient are alike, and none where they are one
        betas = BETAS if both is None else (snap(both[0], ALIKE),)
        options = [(1 - b if kind == FIRST else 1.0, after - b * before) for b in betas if 0 <= b < 1]
    x = out(gradient) / bound
    size = float(x @ x)
    for weight, rest in options if size > 1 else []:
        yield float(x @ (out(rest) / bound)) / size / weight, 1 / np.sqrt(size) / weight


def aside(given: MomentsUpdate, bound: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that removes from a vector any multiple of the parameters, which decay adds."""
    flat, p = given.flat, given.parameters / bound
    return lambda v: flat.project(v / bound, p) * bound
