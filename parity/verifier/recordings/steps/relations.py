"""Rules for gradients and learning rates that differ although all before agrees: one side's in terms
of the other's, or both by a formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.recordings.steps.fitting import JoinedLeaves, fit_multiple, slope, snap, text
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import SHARES, RecordedSide, noise

Pair = tuple[Hypothesis, Hypothesis]
LARGEST_COUNT = 4096
"""Most terms that a sum in place of an average may have."""


def of_gradients(a: RecordedSide, b: RecordedSide) -> Iterator[Pair]:
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


FLOAT32 = 4 * float(np.finfo(np.float32).eps)
"""Distance of a schedule in float32 from the same in float64, as a share of its peak."""
LONGEST = 20_000
"""Most steps of a cosine that is searched for."""


def of_rates(a: RecordedSide, b: RecordedSide) -> Iterator[Pair]:
    """Yield the relations of the two series; the hypotheses hold the rates of the differing step."""
    keys = [key for key in a.segment.result if key in b.segment.result]
    series = [{key: np.array(_series(side, key)) for key in keys} for side in (a, b)]
    if not keys or any(len(s) <= a.segment.index for one in series for s in one.values()):
        return
    apart = [key for key in keys if (np.abs(series[0][key] - series[1][key]) > 0).any()]
    eps = SHARES["learning rate"] * max(a.eps, b.eps)
    related = list(_of(series[0], series[1], apart or keys, eps))
    recorded = a.segment.rates and b.segment.rates  # else the updates tell them
    if (
        not related
        and apart
        and (recorded or _part_later(series[0][apart[0]], series[1][apart[0]], eps))
    ):
        related = [("schedule", *(_read(each[apart[0]], a.segment.index) for each in series))]
    for relation in related:
        aspect, said_a, said_b = relation
        where = {} if len(apart) == len(keys) else {"groups": ", ".join(apart)}
        yield (
            Hypothesis({aspect: said_a} | dict.fromkeys(where, ""), a.segment.result),
            Hypothesis({aspect: said_b} | where, b.segment.result),
        )


def in_float32(a: RecordedSide, b: RecordedSide) -> int | None:
    """Return which side's series (0 or 1) is the other's as float32 computes it; None if neither is."""
    keys = a.segment.result.keys()
    if not keys or keys != b.segment.result.keys():
        return None
    series = [np.array([_series(side, key) for key in keys]) for side in (a, b)]
    if series[0].shape != series[1].shape or not series[0].size:
        return None
    single = [bool((x.astype(np.float32) == x).all()) for x in series]
    close = FLOAT32 * np.abs(series[0]).max()
    if single[0] == single[1] or not (np.abs(series[0] - series[1]) <= close).all():
        return None
    return single.index(True)


def _series(side: RecordedSide, key: str) -> Sequence[float]:
    rates = side.segment.group_rates.get(key, ())
    return rates or (side.segment.rates if len(side.segment.group_rates) <= 1 else ())


Words = tuple[str, str, str]
"""The aspect, what A does, what B does."""


def _of(
    a: dict[str, np.ndarray], b: dict[str, np.ndarray], keys: list[str], eps: float
) -> Iterator[Words]:
    """Yield the relations that hold for all of these series."""
    words = [dict.fromkeys(_one(a[key], b[key], eps)) for key in keys]
    for each in words[0]:
        if all(each in other for other in words[1:]):
            yield each


def _one(a: np.ndarray, b: np.ndarray, eps: float) -> Iterator[Words]:
    if len(a) != len(b) or not len(a):
        return
    same = lambda x, y: bool((np.abs(x - y) <= eps * np.maximum(np.abs(x), np.abs(y))).all())  # noqa: E731
    varied = lambda x: len(x) > 1 and not same(x[1:], x[:-1])  # noqa: E731
    # both series must share two rates or more and vary: a peak between warm-up and decay counts, a
    # constant that one side has for more steps does not
    for by in (1, 2) if varied(a) and varied(b) else ():
        if len(a) - by > 1 and same(a[:-by], b[by:]):
            yield "shift", "this step", _late(by)
        if len(a) - by > 1 and same(b[:-by], a[by:]):
            yield "shift", _late(by), "this step"
    for at in range(1, len(a)) if varied(a) else ():
        again, rest = f"again in step {at}", len(a) - at
        if same(b[:at], a[:at]) and same(b[at:], a[:rest]):
            yield "begins", "once", again
        if same(a[:at], b[:at]) and same(a[at:], b[:rest]):
            yield "begins", again, "once"
    for times in range(2, len(a) // 2 + 1) if varied(a) and varied(b) else ():
        for first in range(times):
            for one, other, is_b in ((a, b, True), (b, a, False)):
                every = one[first::times]
                if len(every) > 2 and same(every, other[: len(every)]) and varied(every):
                    yield _faster(times, of_b=is_b)
    lengths = [_line(each, eps) for each in (a, b)]
    if lengths[0] and lengths[1] and lengths[0][0] == lengths[1][0]:
        ratio = lengths[1][1] / lengths[0][1]
        times = round(max(ratio, 1 / ratio))
        if times > 1 and abs(max(ratio, 1 / ratio) / times - 1) <= 1e-3:
            yield _faster(times, of_b=ratio > 1)
    if (a != 0).all():
        ratio = b / a
        if same(ratio, np.full_like(ratio, ratio[0])):
            yield "scale", "1", text(snap(float(np.median(ratio)), 4 * eps * abs(ratio[0])))
    formulas = [_formula(each, eps) for each in (a, b)]
    if formulas[0] is not None and formulas[1] is not None and formulas[0] != formulas[1]:
        yield "schedule", formulas[0], formulas[1]


def _part_later(a: np.ndarray, b: np.ndarray, eps: float) -> bool:
    """Return whether two series begin alike, so that what parts them is no other rule of the update."""
    return len(a) > 2 and bool((np.abs(a - b)[:2] <= eps * np.abs(a)[:2]).all()) and a[0] != a[1]


def _read(rates: np.ndarray, index: int) -> str:
    """Say what a series is around a step."""
    return (
        f"{', '.join(text(float(f'{rate:.6g}')) for rate in rates[max(index - 1, 0) : index + 3])} ..."
    )


def _late(by: int) -> str:
    return "the step before" if by == 1 else f"{by} steps before"


def _faster(times: int, *, of_b: bool) -> Words:
    one, more = "1 step for each update", f"{times} steps for each update"
    return ("speed", one, more) if of_b else ("speed", more, one)


def _line(rates: np.ndarray, eps: float) -> tuple[float, float] | None:
    """Return the start and the slope of a series that is a line."""
    rise = (rates[-1] - rates[0]) / max(len(rates) - 1, 1)
    if len(rates) < 3 or not rise:
        return None
    off = np.abs(rates[0] + rise * np.arange(len(rates)) - rates).max()
    return (float(rates[0]), float(rise)) if off <= 4 * eps * np.abs(rates).max() else None


def _formula(rates: np.ndarray, eps: float) -> str | None:
    """Describe a series as a constant, a warm-up, or half a cosine down to zero (arXiv 1608.03983)."""
    steps = np.arange(len(rates))
    if len(rates) < 3:
        return None
    close = lambda value: bool((np.abs(value - rates) <= eps * np.abs(rates).max()).all())  # noqa: E731
    if close(np.full_like(rates, rates[0])):
        return f"constant {text(snap(float(rates[0]), eps * abs(rates[0])))}"
    rise = (rates[-1] - rates[0]) / (len(rates) - 1)
    if close(rates[0] + rise * steps):
        start, rise = (snap(float(v), 4 * eps * np.abs(rates).max()) for v in (rates[0], rise))
        return f"warm-up from {text(start)} by {text(rise)} per step" if rise > 0 else None
    return _cosine(rates, eps)


def _cosine(rates: np.ndarray, eps: float) -> str | None:
    steps = np.arange(len(rates))
    curves = []
    lengths = np.arange(max(len(rates) - 1, 2), LONGEST)
    for first in (0, 1):
        basis = 0.5 * (
            1 + np.cos(np.pi * np.minimum((steps + first) / lengths[:, None], 1.0))
        )  # (T, steps)
        size = (basis**2).sum(axis=1)
        peaks = (basis @ rates) / size
        worst = np.abs(peaks[:, None] * basis - rates).max(axis=1)
        for i in np.flatnonzero(worst <= eps * np.abs(rates).max()):
            peak = snap(float(peaks[i]), 4 * eps * abs(peaks[i]))
            curves.append(f"cosine from {text(peak)} to 0 over {lengths[i]} steps, at {first} first")
    return curves[0] if len(curves) == 1 else None  # of several lengths, none is known to be right
