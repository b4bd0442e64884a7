"""Rules of a moving average of the parameters, fitted to every recorded step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parity.measure.error import norm, wide
from parity.measure.site import Site
from parity.measure.tolerance import epsilon
from parity.measure.traces import Trace
from parity.verifier.recordings.pairs import Traces
from parity.verifier.recordings.steps.fitting import snap, text
from parity.verifier.recordings.steps.names import PlaceVerdict, named

ROUNDINGS = 64
"""Units in the last place of the average that its rule may miss it by."""
NEW, OLD = "the parameters after the update", "the parameters before the update"
BEGUN, ZERO = "at the first parameters", "at zero"
AFTER, EARLIER = "behind the first update", "elsewhere"
ASPECTS = ("averaged", "begins", "over the steps", "decay of the average")
"""What two averages may differ in; what comes first explains what comes later."""


class Decay(NamedTuple):
    """The share that one step leaves of the average before it."""

    value: float
    uncertainty: float


class AverageRule(NamedTuple):
    """An average recomputed as decay * the one before + (1 - decay) * parameters."""

    averaged: str
    begins: str
    decays: tuple[Decay | None, ...]
    """One for each step; None where nothing tells it."""
    residual: float

    @property
    def one(self) -> Decay | None:
        """The one decay that fits every step; None if there is none."""
        told = [each for each in self.decays if each is not None]
        low = max((each.value - each.uncertainty for each in told), default=0.0)
        high = min((each.value + each.uncertainty for each in told), default=-1.0)
        return Decay((low + high) / 2, (high - low) / 2) if low <= high else None

    @property
    def words(self) -> dict[str, str]:
        """What the rule does, by aspect."""
        told = [f"{each.value:.4g}" for each in self.decays if each is not None]
        series = "one decay" if self.one or not told else f"decay {', '.join(told[:4])}"
        words = {"averaged": self.averaged, "begins": self.begins, "over the steps": series}
        return words | ({"decay of the average": text(snap(*self.one))} if self.one else {})


def explain_average(traces: Traces, a: Site, b: Site) -> PlaceVerdict | None:
    """Explain two averages of one parameter that differ; None if one follows no rule."""
    options = [_rules(traces.a, a), _rules(traces.b, b)]
    pairs = [(first.words, second.words, first, second) for first in options[0] for second in options[1]]
    if not pairs:
        return None
    left, right, first, second = min(pairs, key=lambda pair: _cost(pair[0], pair[1]))
    apart = next((each for each in ASPECTS if _differ(left, right, each)), None)
    if apart == ASPECTS[-1] and first.one and second.one:
        loose = first.one.uncertainty + second.one.uncertainty
        apart = apart if abs(first.one.value - second.one.value) > loose else None
    if apart is None:
        return PlaceVerdict(unknown="updated: both averages follow one rule", same=True)
    size = norm(wide(traces.a.read(a)).ravel() - wide(traces.b.read(b)).ravel())
    words = [f"{apart} {each[apart]}" if apart[0] == "d" else f"average {apart}: {each[apart]}"
             for each in (left, right)]  # fmt: skip
    cause = named("updated", apart, words, size, residuals=(first.residual, second.residual))
    return PlaceVerdict(causes=(cause,))


def _differ(a: dict[str, str], b: dict[str, str], aspect: str) -> bool:
    return aspect in a and aspect in b and a[aspect] != b[aspect]


def _cost(a: dict[str, str], b: dict[str, str]) -> tuple[int, int, int]:
    """Return how unlikely these two rules are: few differences first, and usual ones."""
    odd = [each["averaged"] != NEW for each in (a, b)] + [each["begins"] != BEGUN for each in (a, b)]
    idle = sum(each.get("decay of the average") in ("0", "1") for each in (a, b))
    return idle, sum(_differ(a, b, each) for each in ASPECTS), sum(odd)


def _rules(trace: Trace, site: Site) -> list[AverageRule]:
    """Return the rules that give one parameter's average in every step up to the first that is told."""
    sites = [site._replace(step=step) for step in trace.steps]
    if any(each not in trace or trace[each].spacing is not None for each in sites):
        return []
    averages = [wide(trace.read(each)).ravel() for each in sites]
    own = [
        wide(trace.read(each)).ravel() if each in trace else None
        for each in (Site(step, "parameters", site.path) for step in trace.steps)
    ]
    found = []
    for averaged, stage in ((NEW, "updated"), (OLD, "parameters")):
        sources = [Site(step, stage, site.path) for step in trace.steps]  # pyright: ignore[reportArgumentType]
        if any(each not in trace for each in sources):
            continue
        values = [wide(trace.read(each)).ravel() for each in sources]
        first = wide(trace.read(Site(trace.steps[0], "parameters", site.path))).ravel()
        for begins, start in (
            (BEGUN, first),
            (AFTER, values[0]),
            (ZERO, np.zeros_like(first)),
            (EARLIER, None),
        ):
            if begins == EARLIER and found:
                continue
            rule = _fit(averaged, begins, [start, *averages], values, own, epsilon(trace[site].dtype))
            found += [rule] if rule is not None else []
    return found


def _fit(
    averaged: str,
    begins: str,
    averages: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    own: Sequence[np.ndarray | None],
    eps: float,
) -> AverageRule | None:
    """Fit the decay of each step; in one of them, the average may begin again with the `own` ones."""
    decays: list[Decay | None] = []
    residual, said = 0.0, begins
    for step, (before, now, value) in enumerate(zip(averages, averages[1:], values, strict=False)):
        if before is None or now is None:
            decays.append(None)
            continue
        fit = _decay(before, now, value, eps)
        if fit is None and step and said == begins and (again := own[step]) is not None:
            said, fit = f"{begins}, and again in step {step}", _decay(again, now, value, eps)
        if fit is None:
            return None
        decay, off = fit
        if begins != EARLIER and step == 0 and decay and abs(decay.value) <= decay.uncertainty:
            return None  # nothing of the start is left: it begins behind the update
        residual = max(residual, off)
        decays.append(decay)
    if begins == EARLIER and not any(decays):
        return None
    return AverageRule(averaged, said, tuple(decays), residual)


def _decay(
    before: np.ndarray, now: np.ndarray, value: np.ndarray, eps: float
) -> tuple[Decay | None, float] | None:
    """Return the decay of one step, None if nothing tells it, with what it leaves unexplained; None if
    there is no such decay."""
    x, y = before - value, now - value
    bound = ROUNDINGS * eps * max(norm(now), norm(before))
    size = norm(x)
    if size <= bound:
        return (None, 0.0) if norm(y) <= bound else None
    decay = float(np.vdot(x, y)) / size**2
    residual = norm(y - decay * x)
    if residual > bound or not -bound / size <= decay <= 1 + bound / size:
        return None
    return Decay(decay, bound / size), residual
