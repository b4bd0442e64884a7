"""Rules for gradients that differ although the loss agrees: one side's in terms of the other's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.recordings.steps.fitting import JoinedLeaves, fit_multiple, slope, snap, text
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import RecordedSide, noise

Pair = tuple[Hypothesis, Hypothesis]
LARGEST_COUNT = 4096
"""Most terms that a sum in place of an average may have."""


def relations(a: RecordedSide, b: RecordedSide) -> Iterator[Pair]:
    """Yield each way in which one side's gradients may follow from the other's; neither side is known
    to be right."""
    yield from _relations(a, b)
    yield from ((first, second) for second, first in _relations(b, a))


def _relations(one: RecordedSide, other: RecordedSide) -> Iterator[Pair]:
    """Yield the ways in which `other` may have changed gradients that were those of `one`."""
    names = {k: v for k, v in other.segment.result.items() if k in one.segment.result}
    flat = JoinedLeaves(names)
    g, made = flat.join(one.segment.result), flat.join(other.segment.result)
    bound = flat.join(noise(other))
    if g is None or made is None or bound is None:
        return

    def pair(aspect: str, plain: str, changed: str, value: np.ndarray, **more: str) -> Pair:
        ordinary = Hypothesis({aspect: plain}, one.segment.result)
        return ordinary, Hypothesis({aspect: changed, **more}, flat.split(value))

    missing = (flat.rms(made) == 0) & (flat.rms(g / bound) > 1)
    if missing.any():
        where = flat.named(missing)
        value = np.where(missing[flat.leaf], 0.0, g)
        yield pair("gradient", "of every leaf", "zero on some leaves", value, leaves=where)
    factor = slope(g, made, bound, max(one.eps, other.eps) * 16)
    if factor is not None and factor < 0 and abs(factor + 1) < FARTHEST.norm:
        yield pair("sign", "downhill", "reversed", -g)
    if factor is not None and factor > 1:
        yield pair("scale", "1", _scale(one, factor), factor * g)
    # after clipping in place, new gradients are added to clipped ones; else to unclipped ones
    for left in (other.segment.clipped_before, other.segment.gradients_before):
        before = flat.join(left)
        if before is not None and before.any():
            yield pair("gradients of the step before", "cleared", "still in it", g + before)
    parameters = flat.join(other.segment.parameters)
    if parameters is not None:
        decay = fit_multiple(flat, made - g, parameters, bound, max(one.eps, other.eps))
        strength = snap(decay.factor, decay.uncertainty)
        if strength > 0:
            value = g + strength * parameters * decay.on[flat.leaf]
            on = [name for name, yes in zip(flat.names, decay.on & decay.sure, strict=True) if yes]
            where = {} if len(on) == len(flat.names) else {"leaves": ", ".join(sorted(on))}
            yield pair("decay in the gradient", "as it is", f"{text(strength)} more", value, **where)


def _scale(side: RecordedSide, factor: float) -> str:
    """Describe a factor, with its likely origin."""
    batch = None if side.segment.labels is None else len(side.segment.labels)
    whole = round(factor)
    if abs(factor - whole) > CERTAIN * factor:
        return text(factor)
    if whole == batch:
        return f"{whole}: summed over the batch of {batch}, not averaged"
    if whole >= 1024 and whole & (whole - 1) == 0:
        return f"{whole}: the loss scale of mixed precision, not divided out"
    if whole <= LARGEST_COUNT:
        return f"{whole}: summed over {whole} micro-batches or devices, not averaged"
    return text(factor)
