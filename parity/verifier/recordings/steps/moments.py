"""Rules of the optimiser's moments, from those before the step and the gradient it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parity.measure.error import relative_error
from parity.verifier.recordings.steps.clipped import ALIKE, TORCH, in_parts
from parity.verifier.recordings.steps.fitting import (
    UNTOLD,
    JoinedLeaves,
    chosen,
    digits,
    fit_multiple,
    is_told,
    slope,
    snap,
    text,
    two_slopes,
)
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import TINY, RecordedSide, noise

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


def sources(side: RecordedSide, given: MomentsUpdate) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Yield the gradients that the optimiser may have been given, clipped or not."""
    segment, flat = side.segment, given.flat
    if segment.clipped_by_both:
        this, before = (flat.join(each) for each in (segment.clipped, segment.clipped_before))
        for when, gradient in (("this step", this), ("the step before", before)):
            if gradient is not None:
                choices = {"step of the gradient": when, "gradient": "as the optimiser was given it"}
                yield choices, gradient
        plain = flat.join(segment.gradients)
        if this is not None and plain is not None and not np.array_equal(plain, this):
            yield {"step of the gradient": "this step", "gradient": "before clipping"}, plain
        return
    for when, gradients, norms in side.gradients:
        plain = flat.join(gradients)
        if plain is not None and (when["step of the gradient"] == "this step" or plain.any()):
            for choices, gradient in _clipped(given, plain, norms, flat.join(segment.clipped)):
                yield when | choices, gradient


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
        times = snap(scale, 32 * eps * abs(scale) + off)
        # from zero, twice the gradient makes the moments that a beta1 of 0.8 for 0.9 makes with a beta2
        # of 0.996 for 0.999: one difference is likelier than two
        if SECOND in given.after and times != 1 and digits(times) <= 2 and is_told(times, off):
            yield {"gradient": f"multiplied by {text(times)}"}, plain * times
        for added in (0.0, TORCH) if 0 < scale != 1 else ():
            whole = norm + added
            most = snap(scale * whole, (32 * eps * scale + off) * whole)
            near = max(abs(most - scale * whole), eps * scale * whole)
            if digits(most) <= 3 and is_told(most, near):
                how = "clipped" if scale < 1 else "scaled up"
                choices = {"gradient": f"{how} to norm {text(most)}", "added to the norm": text(added)}
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


RECORDED = "the moments before"
CLIPPING = ("gradient", "added to the norm")


MomentRule = tuple[dict[str, str], np.ndarray, np.ndarray]
"""Choices, the moment recomputed under them, and the gradient that went into it, decay included."""


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
    for choices, first, whole in _first(given, gradient):
        if SECOND not in given.after:
            yield choices, {FIRST: first}
            continue
        for more, second, _ in _average(given, SECOND, whole**2, "beta2", "second moment"):
            yield choices | more, {FIRST: first, SECOND: second}


def _squares(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    """Yield the average or sum of squares, and the momentum of gradients divided by its root."""
    for told, second, _ in _average(given, SECOND, gradient**2, "beta2", "second moment"):
        if BUFFER not in given.after:
            yield told, {SECOND: second}
            continue
        before, after, bound = (each[BUFFER] for each in (given.before, given.after, given.bounds))
        for epsilon in EPSILONS:
            roots = {"outside": np.sqrt(second) + epsilon, "inside": np.sqrt(second + epsilon)}
            for place, root in roots.items():
                momentum = slope(before, after - gradient / root, bound, given.eps) or 0.0
                choices = {"epsilon": text(epsilon), "place of epsilon": f"{place} the root"}
                choices |= {"momentum": text(momentum)} if before.any() else {}
                value = {SECOND: second, BUFFER: momentum * before + gradient / root}
                yield told | choices, value


def _first(given: MomentsUpdate, gradient: np.ndarray) -> Iterator[MomentRule]:
    """Yield the rules of the first moment, with decay in the gradient of the leaves that need it."""
    bound = given.bounds[FIRST]
    before, after = given.before[FIRST], given.after[FIRST]
    out = aside(given, bound)
    for form in ("average", "sum"):
        x, y = (before - gradient, after - gradient) if form == "average" else (before, after - gradient)
        beta = slope(out(x), out(y), bound, given.eps)
        beta = 0.0 if beta is None and form == "sum" else beta
        if beta is None or not 0 <= beta < 1 or not chosen(beta):
            continue
        weight = 1 - beta if form == "average" else 1.0
        coupled = _coupled(given, gradient, after - beta * before - weight * gradient, weight, bound)
        if coupled is None:
            continue
        whole, decay = coupled
        told = {"beta1": text(beta)} if form == "average" or before.any() else {}
        yield {"first moment": form} | decay | told, beta * before + weight * whole, whole


def _average(
    given: MomentsUpdate, kind: str, value: np.ndarray, name: str, aspect: str
) -> Iterator[MomentRule]:
    before, after, bound = given.before[kind], given.after[kind], given.bounds[kind]
    beta = slope(before - value, after - value, bound, given.eps)
    if beta is not None and 0 <= beta < 1 and chosen(beta):
        yield {aspect: "average", name: text(beta)}, beta * before + (1 - beta) * value, value
    beta = slope(before, after - value, bound, given.eps) or 0.0
    choices = {aspect: "sum"} | ({name: text(beta)} if before.any() else {})
    if 0 <= beta <= 1 and chosen(beta):
        yield choices, beta * before + value, value


def _sums(
    given: MomentsUpdate, gradient: np.ndarray
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    """Yield momentum * before + (1 - dampening) * gradient, the rule of torch.optim.SGD."""
    bound = given.bounds[BUFFER]
    before, after = given.before[BUFFER], given.after[BUFFER]
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
        coupled = _coupled(given, gradient, rest, weight, bound)
        if coupled is None or not (chosen(momentum) and chosen(weight)):
            continue
        whole, decay = coupled
        choices = {"momentum": text(momentum)} if before.any() else {}
        choices |= {"dampening": text(round(1 - weight, 12))} | decay
        yield choices, {BUFFER: momentum * before + weight * whole}


def _coupled(
    given: MomentsUpdate, gradient: np.ndarray, rest: np.ndarray, weight: float, bound: np.ndarray
) -> tuple[np.ndarray, dict[str, str]] | None:
    """Return a gradient with the decay that explains the rest of a moment, and that in words; None if
    its strength is nobody's."""
    flat, p = given.flat, given.parameters
    decay = fit_multiple(flat, rest, p, bound, given.eps)
    strength = snap(decay.factor / weight, decay.uncertainty / abs(weight))
    if not chosen(strength):
        return None
    choices = {"decay in the gradient": text(strength) if strength else "none"}
    if strength:  # named also where it is all of them: the other side's may be some
        choices |= {"decayed leaves": flat.named(decay.on & decay.sure), UNTOLD: flat.named(~decay.sure)}
    return gradient + strength * p * decay.on[flat.leaf], choices
