"""Rules of the optimiser's moments, from those before the step and the gradient it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.clipped import TORCH
from parity.verifier.recordings.steps.fitting import (
    JoinedLeaves,
    chosen,
    digits,
    fit_multiple,
    slope,
    snap,
    text,
    two_slopes,
)
from parity.verifier.recordings.steps.noise import noise
from parity.verifier.recordings.steps.segment import Hypothesis
from parity.verifier.recordings.steps.sides import RecordedSide

BETAS = (0.9, 0.95, 0.8, 0.85, 0.99)
"""Usual values of beta1, for a first update, where beta1 and an unrecorded clipping look the same."""
SEEN = 1e-5
"""Relative precision at which a clipped norm is printed if it is not a short number: of a norm summed in
float32, whose 1e-7 grows by the root of ten thousand numbers."""
FIRST, SECOND, BUFFER = "exp_avg", "exp_avg_sq", "momentum_buffer"
RECORDED = "the moments before"
CLIPPING = ("gradient", "added to the norm")


class MomentsUpdate(NamedTuple):
    """Inputs and results of the moments' update."""

    flat: JoinedLeaves
    before: dict[str, np.ndarray]
    """Moments before the step, by kind, each (N,)."""
    after: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]
    parameters: np.ndarray
    eps: float


class MomentRule(NamedTuple):
    """One moment, recomputed under a rule."""

    choices: dict[str, str]
    value: np.ndarray
    gradient: np.ndarray
    """Gradient that went into the moment, coupled decay included."""


def kinds(side: RecordedSide) -> list[str]:
    """Return the kinds of moments that a program keeps."""
    return sorted({key.rpartition(" ")[2] for key in side.segment.moments})


def leaves(side: RecordedSide, kind: str) -> JoinedLeaves:
    """Return the parameters that have a kind of moment."""
    values = {k.rpartition(" ")[0]: v for k, v in side.segment.moments.items() if k.endswith(f" {kind}")}
    return JoinedLeaves(values)


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield Adam's averages of the gradient and its square (arXiv 1412.6980), or the sum that SGD with
    momentum keeps; with or without L2 decay in the gradient, clipping, and moments reset to zero.
    """
    segment = side.segment
    if not segment.moments_before and segment.count not in (None, 1):
        return  # the moments before this update were not recorded
    present = [kind for kind in (FIRST, SECOND, BUFFER) if kind in kinds(side)]
    if not present:
        return
    flat = leaves(side, present[0])
    parameters = flat.join(segment.parameters)
    after = {kind: flat.join(segment.moments, kind) for kind in present}
    bounds = {kind: flat.join(noise(side), kind) for kind in present}
    if parameters is None or any(v is None for v in (*after.values(), *bounds.values())):
        return
    zero = {kind: np.zeros_like(parameters) for kind in present}
    recorded = {kind: flat.join(segment.moments_before, kind) for kind in present}
    starts = [("zero", zero)]
    if not any(v is None for v in recorded.values()):
        starts = [(RECORDED, recorded), ("zero, again", zero)]
    for start, before in starts:
        given = MomentsUpdate(flat, before, after, bounds, parameters, side.eps)  # pyright: ignore[reportArgumentType]
        for source, gradient in _sources(side, given):
            made = _averages(given, gradient) if FIRST in present else _sums(given, gradient)
            for choices, value in made:
                choices = {"moments from": start} | source | choices
                entries = {
                    k: v for kind, array in value.items() for k, v in flat.split(array, kind).items()
                }
                yield Hypothesis(choices, entries)


def betas(side: RecordedSide) -> list[tuple[float, float]]:
    """Return the pairs of betas whose averages reproduce a program's moments."""
    averages = {
        key: value
        for key, value in side.segment.moments.items()
        if key.rpartition(" ")[2] in (FIRST, SECOND)
    }
    of_moments = replace(side, segment=replace(side.segment, stage="moments", result=averages))
    return [
        (float(each.choices["beta1"]), float(each.choices["beta2"]))
        for each in hypotheses(of_moments)
        if {"beta1", "beta2"} <= each.choices.keys() and _reproduces(of_moments, each)
    ]


def begun_elsewhere(side: RecordedSide) -> Iterator[Hypothesis]:
    """Explain first moments that cannot have begun at zero: the run continued an unrecorded state.

    Some rule must lead from them to the moments of the next update.
    """
    after = side.following
    if after is None or any(_reproduces(side, each) for each in hypotheses(side)):
        return
    after = replace(after, segment=replace(after.segment, moments_before=side.segment.result))
    for each in hypotheses(after):
        if each.choices["moments from"] == RECORDED and _reproduces(after, each):
            # whether a gradient is large enough to be clipped may change from step to step
            rule = {k: text for k, text in each.choices.items() if k not in CLIPPING}
            yield Hypothesis(rule | {"moments from": "others, not recorded"}, side.segment.result)


def _reproduces(side: RecordedSide, hypothesis: Hypothesis) -> bool:
    bounds, result = noise(side), side.segment.result
    return all(
        np.sqrt(np.mean(((hypothesis.value[key] - result[key]) / bounds[key]) ** 2)) <= 1
        for key in result
    )


class GivenGradient(NamedTuple):
    """A gradient that the optimiser may have been given."""

    choices: dict[str, str]
    gradient: np.ndarray


def _sources(side: RecordedSide, given: MomentsUpdate) -> Iterator[GivenGradient]:
    """Yield the gradients that the optimiser may have been given, clipped or not."""
    segment, flat = side.segment, given.flat
    plain, clipped = flat.join(segment.gradients), flat.join(segment.clipped)
    if clipped is not None and segment.clipped_by_both:
        yield GivenGradient({"gradient": "as the optimiser was given it"}, clipped)
        if plain is not None and not np.array_equal(plain, clipped):
            yield GivenGradient({"gradient": "before clipping"}, plain)
        return
    if clipped is not None:
        if plain is None or np.array_equal(plain, clipped):
            yield GivenGradient({"gradient": "not clipped"}, clipped)
            return
        scale = float(plain @ clipped) / float(plain @ plain)
        named = [choices for choices, _ in _norms(side, scale)]
        norm = snap(scale * side.norm, SEEN * scale * side.norm)
        for choices in named or [{"gradient": f"clipped to norm {text(norm)}"}]:
            yield GivenGradient(choices, clipped)
        yield GivenGradient({"gradient": "not clipped"}, plain)
        return
    if plain is None:
        return
    yield GivenGradient({"gradient": "not clipped"}, plain)
    for scale in _scales(given, plain):
        if 0 < scale < 1:
            for choices, exactly in _norms(side, scale):
                yield GivenGradient(choices, plain * exactly)
    for most in _limits(given, plain):
        yield GivenGradient(
            {"gradient": f"each value clipped to {text(most)}"}, np.clip(plain, -most, most)
        )


def _norms(side: RecordedSide, scale: float) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the norms to which a scaled gradient may have been clipped, each with its exact scale."""
    for added in (0.0, TORCH):
        whole = side.norm + added
        norm = snap(scale * whole, 32 * side.eps * whole)
        if norm and digits(norm) <= 3:
            choices = {"gradient": f"clipped to norm {text(norm)}", "added to the norm": text(added)}
            yield choices, norm / whole


def _limits(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[float]:
    """Yield the values to which each element may have been clipped, if a first moment that began at
    zero shows the largest element."""
    kind = FIRST if FIRST in given.after else BUFFER
    if given.before[kind].any():
        return
    most = float(np.abs(given.after[kind]).max(initial=0.0))
    for weight in [1 - beta for beta in BETAS] if kind == FIRST else [1.0]:
        limit = snap(most / weight, 32 * given.eps * most / weight)
        if 0 < limit < np.abs(gradient).max(initial=0.0) and digits(limit) <= 3:
            yield limit


def _scales(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[float]:
    """Yield the factors by which the gradient may have been multiplied before it reached the moments."""
    kind = FIRST if FIRST in given.after else BUFFER
    before, after, bound = given.before[kind], given.after[kind], given.bounds[kind]
    out = _aside(given, bound)
    if not before.any():
        whole = slope(out(gradient), out(after), bound, given.eps)
        if whole is not None:
            yield from [whole / (1 - beta) for beta in BETAS] if kind == FIRST else [whole]
        return
    both = two_slopes((out(before), out(gradient)), out(after), bound, given.eps)
    if both is not None and both[0] < 1:
        yield both[1] / (1 - both[0]) if kind == FIRST else both[1]


def _aside(given: MomentsUpdate, bound: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that removes from a vector any multiple of the parameters, which decay adds."""
    flat, p = given.flat, given.parameters / bound
    return lambda v: flat.project(v / bound, p) * bound


def _averages(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    for first in _first(given, gradient):
        if SECOND not in given.after:
            yield first.choices, {FIRST: first.value}
            continue
        for second in _average(given, SECOND, first.gradient**2, "beta2", "second moment"):
            yield first.choices | second.choices, {FIRST: first.value, SECOND: second.value}


def _first(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[MomentRule]:
    """Yield the rules of the first moment, with decay in the gradient of the leaves that need it."""
    flat, bound = given.flat, given.bounds[FIRST]
    before, after = given.before[FIRST], given.after[FIRST]
    p = given.parameters
    out = _aside(given, bound)
    for form in ("average", "sum"):
        x, y = (before - gradient, after - gradient) if form == "average" else (before, after - gradient)
        beta = slope(out(x), out(y), bound, given.eps)
        beta = 0.0 if beta is None and form == "sum" else beta
        if beta is None or not 0 <= beta < 1 or not chosen(beta):
            continue
        weight = 1 - beta if form == "average" else 1.0
        decay = fit_multiple(flat, after - beta * before - weight * gradient, p, bound, given.eps)
        strength = snap(decay.factor / weight, decay.uncertainty / weight)
        if not chosen(strength):
            continue
        whole = gradient + strength * p * decay.on[flat.leaf]
        choices = {"first moment": form, "decay in the gradient": text(strength) if strength else "none"}
        if form == "average" or before.any():
            choices["beta1"] = text(beta)
        if strength and not (decay.on | ~decay.sure).all():
            choices["decayed leaves"] = _names(flat, decay.on & decay.sure)
        yield MomentRule(choices, beta * before + weight * whole, whole)


def _average(
    given: MomentsUpdate, kind: str, value: np.ndarray, name: str, aspect: str
) -> Iterator[MomentRule]:
    before, after, bound = given.before[kind], given.after[kind], given.bounds[kind]
    beta = slope(before - value, after - value, bound, given.eps)
    if beta is not None and 0 <= beta < 1 and chosen(beta):
        yield MomentRule(
            {aspect: "average", name: text(beta)}, beta * before + (1 - beta) * value, value
        )
    beta = slope(before, after - value, bound, given.eps) or 0.0
    choices = {aspect: "sum"} | ({name: text(beta)} if before.any() else {})
    if 0 <= beta <= 1 and chosen(beta):
        yield MomentRule(choices, beta * before + value, value)


def _sums(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    """Yield momentum * before + (1 - dampening) * gradient, the rule of torch.optim.SGD."""
    flat, bound = given.flat, given.bounds[BUFFER]
    before, after, p = given.before[BUFFER], given.after[BUFFER], given.parameters
    out = _aside(given, bound)
    choices: dict[str, str] = {}
    momentum = 0.0
    if before.any():
        fit = two_slopes((out(before), out(gradient)), out(after), bound, given.eps)
        if fit is None:
            return
        momentum, weight = fit
        choices["momentum"] = text(momentum)
    else:
        weight = slope(out(gradient), out(after), bound, given.eps)
        if not weight:
            return
    decay = fit_multiple(flat, after - momentum * before - weight * gradient, p, bound, given.eps)
    strength = snap(decay.factor / weight, decay.uncertainty / abs(weight))
    if not (chosen(momentum) and chosen(weight) and chosen(strength)):
        return
    whole = gradient + strength * p * decay.on[flat.leaf]
    choices["dampening"] = text(round(1 - weight, 12))
    choices["decay in the gradient"] = text(strength) if strength else "none"
    if strength and not (decay.on | ~decay.sure).all():
        choices["decayed leaves"] = _names(flat, decay.on & decay.sure)
    yield choices, {BUFFER: momentum * before + weight * whole}


def _names(flat: JoinedLeaves, on: np.ndarray) -> str:
    return ", ".join(name for name, yes in sorted(zip(flat.names, on, strict=True)) if yes)
