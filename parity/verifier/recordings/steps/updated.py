"""Rules of the parameters' update: learning rate times direction, and weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.directions import Direction, denominators, directions
from parity.verifier.recordings.steps.fitting import (
    JoinedLeaves,
    chosen,
    fit_multiple,
    slope,
    snap,
    text,
)
from parity.verifier.recordings.steps.noise import noise
from parity.verifier.recordings.steps.segment import Hypothesis
from parity.verifier.recordings.steps.sides import RecordedSide

AT_ONCE, AFTER = "of the parameters before the update", "of the parameters after the update"


class Step(NamedTuple):
    """Parameters and their change in a step, as vectors (N,)."""

    flat: JoinedLeaves
    start: np.ndarray
    change: np.ndarray
    """Parameters before minus parameters after."""
    bound: np.ndarray


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield every usual rule with every usual number that comes near the recorded update."""
    step = _step(side)
    if step is not None:
        if side.segment.step and not step.change.any():
            yield Hypothesis({"update": "left out"}, step.flat.split(step.start))
        for direction in _near(step, directions(side, step.flat)):
            for rate_name, rate in _rates(side):
                yield from _decayed(side, step, direction, rate_name, rate)


def fitted(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield the same rules with an epsilon or a learning rate that is fitted to the update."""
    step = _step(side)
    if step is None:
        return
    rates = _rates(side)
    for direction in _near(step, directions(side, step.flat)):
        rate = _fitted_rate(side, step, direction)
        whose = [rate_name for rate_name, r in rates if rate is not None and _is_rounded(rate, r)]
        if rate is not None and whose:
            yield from _decayed(side, step, direction, whose[0], rate, "rounded to float32")
        elif rate is not None and (
            chosen(rate) or any(chosen(round(rate / r, 9)) for _, r in rates[:1] if r)
        ):
            yield from _decayed(side, step, direction, text(rate), rate)
    for each in denominators(side, step.flat):
        for rate_name, rate in rates[:1]:
            epsilon = _fitted_epsilon(step, rate, each.of)
            if epsilon is not None:
                direction = Direction({**each.choices, "epsilon": text(epsilon)}, each.of(epsilon))
                yield from _decayed(side, step, direction, rate_name, rate)


def used_rate(side: RecordedSide) -> float | None:
    """Return the learning rate that an update tells, where an usual direction explains all the rest."""
    step = _step(side)
    if step is None:
        return None
    near = _near(step, directions(side, step.flat))
    return next((rate for each in near if (rate := _fitted_rate(side, step, each)) is not None), None)


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
    return Step(flat, start, start - after, bound)


def _rates(side: RecordedSide) -> list[tuple[str, float]]:
    """Return the signed learning rates that may have been used, in words; none if none was recorded."""
    rates, index = side.segment.rates, side.segment.index
    if len(rates) <= index:
        return []
    now = rates[index]
    options = [("of this step", now)]
    if index and rates[index - 1] != now:
        options.append(("of the step before", rates[index - 1]))
    if index + 1 < len(rates) and rates[index + 1] != now:
        options.append(("of the step after", rates[index + 1]))
    options += [("applied twice", now**2), ("not applied", 1.0), ("of this step, uphill", -now)]
    return options


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


def _fitted_rate(side: RecordedSide, step: Step, direction: Direction) -> float | None:
    flat, bound = step.flat, step.bound
    out = lambda v: flat.project(v / bound, step.start / bound) * bound  # noqa: E731
    return slope(out(direction.value), out(step.change), bound, side.eps)


def _fitted_epsilon(step: Step, rate: float, direction) -> float | None:
    """Return the short number that, as epsilon, leaves the smallest residual, by golden-section search
    over its logarithm; None if there is none."""
    flat, bound = step.flat, step.bound
    p, c = step.start / bound, flat.project(step.change / bound, step.start / bound)

    def cost(power: float) -> float:
        with np.errstate(all="ignore"):
            d = flat.project(rate * direction(10.0**power) / bound, p)
            total = float(((c - d) ** 2).sum())
        return total if np.isfinite(total) else np.inf

    grid = np.arange(-16, 0, 0.25)
    costs = [cost(power) for power in grid]
    best = int(np.argmin(costs))
    if best in (0, len(grid) - 1) or costs[best] == np.inf:
        return None
    low, high = grid[best - 1], grid[best + 1]
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(50):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if cost(left) < cost(right) else (left, high)
    power = (low + high) / 2
    return next(
        (
            short
            for digits in range(4)  # nobody writes an epsilon with more digits
            if cost(np.log10(short := float(f"{10**power:.{digits}e}")))
            <= 1.1 * cost(power) + 0.01 * len(c)
        ),
        None,
    )


def _decayed(
    side: RecordedSide,
    step: Step,
    direction: Direction,
    rate_name: str,
    rate: float,
    rounded: str = "as recorded",
) -> Iterator[Hypothesis]:
    """Yield an update with the remaining decay, if that has one strength on some leaves and none on
    others."""
    flat = step.flat
    move = rate * direction.value
    choices = {"update": "made", **direction.choices, "learning rate": rate_name}
    last = {"number type of the rate": rounded}
    rest = step.change - move
    for order, decays in ((AT_ONCE, step.start), (AFTER, step.start - move)):
        decay = fit_multiple(flat, rest, decays, step.bound, side.eps)
        value = step.start - move - decay.factor * decays * decay.on[flat.leaf]
        if (flat.rms((step.start - step.change - value) / step.bound) > 1).any():
            continue
        if not decay.factor:
            if order == AT_ONCE:  # at a rate of zero, no decay tells how large it is
                none = {"weight decay": "none"} if rate else {}
                yield Hypothesis({**choices, **none, **last}, flat.split(value))
            continue
        sure = zip(flat.names, decay.on & decay.sure, strict=True)
        leaves = ", ".join(sorted(name for name, on in sure if on))
        for times, by in _multiples(side, rate):
            # some programs multiply by 1 - decay, which is rounded before it is used
            strength = snap(decay.factor / by, (decay.uncertainty + side.eps) / abs(by))
            if not chosen(strength):
                continue
            value = step.start - move - strength * by * decays * decay.on[flat.leaf]
            extra = {"decay": order, "decay multiplied by": times, "decayed leaves": leaves}
            said_of = {"weight decay": text(strength), **extra, **last}
            yield Hypothesis({**choices, **said_of}, flat.split(value))


def _multiples(side: RecordedSide, rate: float) -> list[tuple[str, float]]:
    """Return the factors that may multiply the strength of the decay, in words."""
    rates = side.segment.rates
    factors = [("the learning rate", abs(rate)), ("nothing", 1.0)]
    if rates and len(set(rates)) > 1 and max(rates) > 0:
        factors.append(("the learning rate as a share of its largest", abs(rate) / max(rates)))
    return factors
