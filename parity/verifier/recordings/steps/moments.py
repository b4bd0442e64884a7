"""Rules of the optimiser's moments, from those before the step and the gradient it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.clipped import ALIKE
from parity.verifier.recordings.steps.fitting import (
    UNTOLD,
    JoinedLeaves,
    chosen,
    fit_multiple,
    slope,
    snap,
    text,
    two_slopes,
)
from parity.verifier.recordings.steps.given import (
    BETAS,
    BUFFER,
    EPSILONS,
    FIRST,
    SECOND,
    MomentsUpdate,
    aside,
    sources,
)
from parity.verifier.recordings.steps.noise import noise
from parity.verifier.recordings.steps.segment import Hypothesis
from parity.verifier.recordings.steps.sides import RecordedSide

RECORDED = "the moments before"
CLIPPING = ("gradient", "added to the norm")


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
    """Yield Adam's averages of the gradient and its square (arXiv 1412.6980), the squares alone that
    RMSprop and Adagrad keep, or the sum that SGD with momentum keeps; with or without L2 decay in the
    gradient, clipping, and moments reset to zero.
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
        if start == RECORDED and any(each.any() for each in before.values()):
            entries = {k: v for kind in present for k, v in flat.split(before[kind], kind).items()}
            yield Hypothesis({"moments from": start, "update": "left out"}, entries)
        for source, gradient in sources(side, given):
            rule = _averages if FIRST in present else _squares if SECOND in present else _sums
            for choices, value in rule(given, gradient):
                choices = {"moments from": start, "update": "made"} | source | choices
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


def _averages(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    for first in _first(given, gradient):
        if SECOND not in given.after:
            yield first.choices, {FIRST: first.value}
            continue
        for second in _average(given, SECOND, first.gradient**2, "beta2", "second moment"):
            yield first.choices | second.choices, {FIRST: first.value, SECOND: second.value}


def _squares(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    """Yield the average or sum of squares, and the momentum of gradients divided by its root."""
    for second in _average(given, SECOND, gradient**2, "beta2", "second moment"):
        if BUFFER not in given.after:
            yield second.choices, {SECOND: second.value}
            continue
        before, after, bound = (each[BUFFER] for each in (given.before, given.after, given.bounds))
        for epsilon in EPSILONS:
            root = np.sqrt(second.value)
            for place, by in (("outside", root + epsilon), ("inside", np.sqrt(second.value + epsilon))):
                momentum = slope(before, after - gradient / by, bound, given.eps) or 0.0
                choices = {"epsilon": text(epsilon), "place of epsilon": f"{place} the root"}
                choices |= {"momentum": text(momentum)} if before.any() else {}
                value = {SECOND: second.value, BUFFER: momentum * before + gradient / by}
                yield second.choices | choices, value


def _first(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[MomentRule]:
    """Yield the rules of the first moment, with decay in the gradient of the leaves that need it."""
    flat, bound = given.flat, given.bounds[FIRST]
    before, after = given.before[FIRST], given.after[FIRST]
    p = given.parameters
    out = aside(given, bound)
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
            choices["decayed leaves"] = flat.named(decay.on & decay.sure)
            choices[UNTOLD] = flat.named(~decay.sure)
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
    out = aside(given, bound)
    momenta: tuple[float, ...] = (0.0,)
    if before.any():
        fit = two_slopes((out(before), out(gradient)), out(after), bound, given.eps)
        # two fits at once are loose where both are alike: then the usual momentum is tried
        momenta = (BETAS[0], *(() if fit is None else (snap(fit[0], ALIKE),)))
    for momentum in dict.fromkeys(momenta):
        weight = slope(out(gradient), out(after - momentum * before), bound, given.eps)
        if not weight:
            continue
        rest = after - momentum * before - weight * gradient
        decay = fit_multiple(flat, rest, p, bound, given.eps)
        strength = snap(decay.factor / weight, decay.uncertainty / abs(weight))
        if not (chosen(momentum) and chosen(weight) and chosen(strength)):
            continue
        whole = gradient + strength * p * decay.on[flat.leaf]
        choices = {"momentum": text(momentum)} if before.any() else {}
        choices["dampening"] = text(round(1 - weight, 12))
        choices["decay in the gradient"] = text(strength) if strength else "none"
        if strength and not (decay.on | ~decay.sure).all():
            choices["decayed leaves"] = flat.named(decay.on & decay.sure)
            choices[UNTOLD] = flat.named(~decay.sure)
        yield choices, {BUFFER: momentum * before + weight * whole}
