"""Rules of the parameters' update: learning rate times direction, and weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.clipped import ALIKE
from parity.verifier.recordings.steps.directions import Direction, denominators, directions
from parity.verifier.recordings.steps.fitting import (
    LEAST,
    RARE,
    RATE,
    TAKEN,
    UNTOLD,
    JoinedLeaves,
    chance,
    chosen,
    fit_multiple,
    is_told,
    slope,
    snap,
    text,
)
from parity.verifier.recordings.steps.moments import EPSILONS
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import TINY, RecordedSide, noise

SURE = 1e4
"""Square of the size, in roundings, of an update that tells its learning rate to a hundredth."""
APART = 1e-2
"""Least relative difference of the rates of two groups: nobody gives less, and where a rule is nearly
right each leaf is off by less."""
AT_ONCE, AFTER = "of the parameters before the update", "of the parameters after the update"


class Told(NamedTuple):
    """Learning rates that an update tells, each (leaves,)."""

    value: np.ndarray
    off: np.ndarray
    """How far they may be off."""
    sure: np.ndarray
    """Whether there is anything that tells it."""


class Step(NamedTuple):
    """Parameters and their change in a step, as vectors (N,)."""

    side: RecordedSide
    flat: JoinedLeaves
    start: np.ndarray
    change: np.ndarray
    """Parameters before minus parameters after."""
    bound: np.ndarray


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield every usual rule with every usual number that comes near the recorded update."""
    step = _step(side)
    if step is None:
        return
    if side.segment.step and not step.change.any():
        yield Hypothesis({"update": "left out"}, step.flat.split(step.start))
    for direction in _near(step, directions(side, step.flat)):
        for rate_name, rates in _rates(side):
            rate = _nearest(step, direction, rates)
            yield from _decayed(step, direction, _said(step, rate_name, rates, rate), rate)


def fitted(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield the same rules with an epsilon or learning rates that are fitted to the update."""
    step = _step(side)
    if step is None:
        return
    rates = _rates(side)
    for direction in _near(step, directions(side, step.flat)):
        rate, told = _fitted_rate(step, direction), _told(step, direction)
        one = rate is not None and _is_one(told, rate)
        value = np.full_like(told.value, rate) if one else _grouped(told)
        if value is None:
            continue
        near = [(rate_name, own, _nearest(step, direction, own)) for rate_name, own in rates]
        rounded = [each for each in near if all(map(_is_rounded, value, each[2]))]
        if rounded:
            yield from _decayed(step, direction, _said(step, *rounded[0]), value, "rounded to float32")
        elif one and rate is not None:
            named = _chosen(rate, told, [r for _, own in rates[:1] for r in own if r])
            if named is not None:
                value = np.full_like(told.value, named)
                yield from _decayed(step, direction, _said(step, text(named)), value)
        else:
            value = np.where(told.sure, value, near[0][2] if near else value)
            said = _said(step, "by groups", tuple(sorted(set(value))), value)
            yield from _decayed(step, direction, said, value)
    for each in denominators(side, step.flat):
        for rate_name, own in rates[:1]:
            rate = _nearest(step, Direction(each.choices, each.of(EPSILONS[0])), own)
            epsilon = _fitted_epsilon(step, rate[step.flat.leaf], each.of)
            direction = Direction({**each.choices, "epsilon": text(epsilon)}, each.of(epsilon))
            yield from _decayed(step, direction, _said(step, rate_name, own, rate), rate)


def used_rate(side: RecordedSide) -> float | None:
    """Return the learning rate that an update tells, where an usual direction explains all the rest, and
    that one rate all of it."""
    step = _step(side)
    if step is None:
        return None
    for each in _near(step, directions(side, step.flat)):
        rate = _fitted_rate(step, each)
        if rate is not None and _is_one(_told(step, each), rate):
            return rate
    return None


def _is_rounded(rate: float, recorded: float) -> bool:
    """Return whether a rate is the recorded one, rounded to float32."""
    eps = float(np.finfo(np.float32).eps)
    least = 1e-3 * eps  # less comes of float64, whose rounding is a millionth of that of float32
    return least < abs(rate / recorded - 1) <= 4 * eps if recorded else False


def _step(side: RecordedSide) -> Step | None:
    flat = JoinedLeaves(side.segment.result)
    start, after = flat.join(side.segment.parameters), flat.join(side.segment.result)
    bound = flat.join(noise(side))
    if start is None or after is None or bound is None:
        return None
    return Step(side, flat, start, start - after, bound)


def _rates(side: RecordedSide) -> list[tuple[str, tuple[float, ...]]]:
    """Return the signed learning rates, of all groups, that may have been used, in words; none if none
    was recorded."""
    index = side.segment.index
    series = [each for each in side.segment.group_rates.values() if len(each) > index]
    series = series or [side.segment.rates] * (len(side.segment.rates) > index)
    if not series:
        return []
    at = lambda i: tuple(dict.fromkeys(each[i] for each in series))  # noqa: E731
    now = at(index)
    options = [("of this step", now)]
    if index and at(index - 1) != now:
        options.append(("of the step before", at(index - 1)))
    if index + 1 < len(series[0]) and at(index + 1) != now:
        options.append(("of the step after", at(index + 1)))
    uphill = tuple(-rate for rate in now)
    options += [("applied twice", tuple(rate**2 for rate in now)), ("not applied", (1.0,))]
    return [*options, ("of this step, uphill", uphill)]


def _told(step: Step, direction: Direction) -> Told:
    """Return the learning rate that the update of each leaf tells, whatever its decay."""
    flat = step.flat
    out = lambda v: flat.project(v / step.bound, step.start / step.bound)  # noqa: E731
    x, y = out(direction.value), out(step.change)
    size = flat.total(x**2)
    value = flat.total(x * y) / np.maximum(size, TINY)
    off = 1 / np.sqrt(np.maximum(size, TINY)) + 16 * step.side.eps * np.abs(value)
    snapped = np.array([snap(float(v), float(u)) for v, u in zip(value, off, strict=True)])
    return Told(snapped, off, size > SURE)


def _is_one(told: Told, rate: float) -> bool:
    """Return whether a rate is that of all leaves."""
    return bool((np.abs(told.value - rate) <= told.off + ALIKE * abs(rate))[told.sure].all())


def _chosen(rate: float, told: Told, recorded: list[float]) -> float | None:
    """Return the rate of all leaves that looks chosen: a short number, or a recorded rate times one,
    where few numbers come so near to a short one; None if neither does. After one step NAdam's update is
    Adam's with 1.4737 times its rate, which the rounding of float32 does not tell from 1.474."""
    off = min(told.off[told.sure], default=np.inf)
    if is_told(rate, off):
        return rate
    for each in recorded:
        loose = 2 * off / abs(each)  # the rate itself was fitted to a short number
        times = snap(rate / each, loose)
        if is_told(times, loose):
            return times * each
    return None


def _grouped(told: Told) -> np.ndarray | None:
    """Return the rates that leaves tell (leaves,), one for all that agree; None unless each is that of
    several leaves or a short number, and so many short ones are no accident: LAMB gives each leaf a rate
    of its own, of which the rounding of float32 shows three or four digits."""
    value, left, accidents = told.value.copy(), told.sure.copy(), []
    while left.any():
        best = np.flatnonzero(left)[np.argmin(told.off[left])]
        alike = left & (np.abs(told.value - told.value[best]) <= told.off + told.off[best])
        if alike.sum() < 2:
            own = float(told.value[best])
            if not chosen(own):
                return None
            accidents.append(chance(own, float(told.off[best])))
        value[alike], left = told.value[best], left & ~alike
    groups = np.unique(value[told.sure])
    apart = np.abs(np.diff(groups)) > APART * np.abs(groups[1:])
    accident = np.prod(accidents) if accidents else 0.0  # that several leaves agree is none
    return value if apart.size and apart.all() and accident <= RARE else None


def _nearest(step: Step, direction: Direction, rates: tuple[float, ...]) -> np.ndarray:
    """Return the rate of each leaf (leaves,): of several, the one that leaves least of its update."""
    flat = step.flat
    p, c = step.start / step.bound, step.change / step.bound
    rest = [flat.rms(flat.project(c - rate * direction.value / step.bound, p)) for rate in rates]
    return np.array(rates)[np.argmin(rest, axis=0)]


def _said(
    step: Step, rate_name: str, rates: tuple[float, ...] = (), rate: np.ndarray | None = None
) -> dict[str, str]:
    """Say which rate was used; of several, by the name of each leaf."""
    said = {"learning rate": rate_name}
    if rate_name.startswith("of ") and len(rates) == 1:
        said[RATE] = text(rates[0])
    if len(rates) > 1 and rate is not None:
        leaves = sorted(f"{name} {text(own)}" for name, own in zip(step.flat.names, rate, strict=True))
        said["rates of leaves"] = ", ".join(leaves)
    return said


def _near(step: Step, candidates: Iterable[Direction]) -> Iterator[Direction]:
    """Yield the directions of which every leaf's change is a multiple, apart from decay."""
    flat, bound = step.flat, step.bound
    with np.errstate(all="ignore"):
        p = step.start / bound
        c = flat.project(step.change / bound, p)
    for direction in candidates:
        with np.errstate(all="ignore"):
            d = direction.value / bound
            if np.isfinite(d).all():
                rest = flat.project(c, flat.project(d, p))
                if (flat.rms(rest) <= 1).all():
                    yield direction


def _fitted_rate(step: Step, direction: Direction) -> float | None:
    flat, bound = step.flat, step.bound
    out = lambda v: flat.project(v / bound, step.start / bound) * bound  # noqa: E731
    return slope(out(direction.value), out(step.change), bound, step.side.eps)


def _fitted_epsilon(step: Step, rate: np.ndarray, direction: Callable[[float], np.ndarray]) -> float:
    """Return the number of one digit that, as epsilon, leaves the smallest residual."""
    flat, bound = step.flat, step.bound
    p, c = step.start / bound, flat.project(step.change / bound, step.start / bound)

    def cost(epsilon: float) -> float:
        with np.errstate(all="ignore"):
            total = float(((c - flat.project(rate * direction(epsilon) / bound, p)) ** 2).sum())
        return total if np.isfinite(total) else np.inf

    return min(
        (float(f"{digit}e{power}") for power in range(-16, 0) for digit in range(1, 10)), key=cost
    )


def _decayed(
    step: Step,
    direction: Direction,
    said: Mapping[str, str],
    rate: np.ndarray,
    rounded: str = "as recorded",
) -> Iterator[Hypothesis]:
    """Yield an update with the remaining decay, if that has one strength on some leaves and none on
    others.

    Args:
        said: the rate in words.
        rate: of each leaf.
    """
    flat, eps = step.flat, step.side.eps
    by_element = rate[flat.leaf] if np.ptp(rate) else float(rate[0])
    move = by_element * direction.value
    choices = {"update": "made", **direction.choices, **said}
    last = {"number type of the rate": rounded}
    rest = step.change - move
    for order, decays in ((AT_ONCE, step.start), (AFTER, step.start - move)):
        of_one = fit_multiple(flat, rest, decays, step.bound, eps)
        if not of_one.factor:
            if order == AT_ONCE and (flat.rms(rest / step.bound) <= 1).all():
                # at a rate of zero, no decay tells how large it is
                told = zip(flat.names, flat.rms(step.start / step.bound), strict=True)
                least = ", ".join(f"{name} {text(1 / each)}" for name, each in told if each)
                none = {"weight decay": "none", LEAST: least} if np.any(rate) else {}
                yield Hypothesis({**choices, **none, **last}, flat.split(step.start - move))
            continue
        for times, by in _multiples(step.side, by_element):
            most = float(np.max(by))
            if not most:
                continue
            along = decays * (by / most)
            decay = fit_multiple(flat, rest, along, step.bound, eps) if np.ndim(by) else of_one
            on = decay.on[flat.leaf]
            if (flat.rms((rest - decay.factor * along * on) / step.bound) > 1).any():
                continue
            # some programs multiply by 1 - decay, which is rounded before it is used
            strength = snap(decay.factor / most, (decay.uncertainty + eps) / most)
            if not chosen(strength):
                continue
            value = step.start - move - strength * by * decays * on
            extra = {
                "decay": order,
                "decay multiplied by": times,
                "decayed leaves": flat.named(decay.on & decay.sure),
                UNTOLD: flat.named(~decay.sure),
                TAKEN: text(strength * most),
            }
            said_of = {"weight decay": text(strength), **extra, **last}
            yield Hypothesis({**choices, **said_of}, flat.split(value))


def _multiples(side: RecordedSide, rate: np.ndarray | float) -> list[tuple[str, np.ndarray | float]]:
    """Return the factors that may multiply the strength of the decay, in words."""
    rates = side.segment.rates
    factors = [("the learning rate", np.abs(rate)), ("nothing", 1.0)]
    if rates and len(set(rates)) > 1 and max(rates) > 0:
        factors.append(("the learning rate as a share of its largest", np.abs(rate) / max(rates)))
    return factors
