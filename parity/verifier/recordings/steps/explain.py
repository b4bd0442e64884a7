"""Explanation of one stage of a training step: the pair of known rules that reproduces both programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.recordings.steps import clipped, loss, moments, relations, updated
from parity.verifier.recordings.steps.fitting import LEAST, RATE, TAKEN, UNTOLD, digits
from parity.verifier.recordings.steps.names import PlaceVerdict, StepCause, named
from parity.verifier.recordings.steps.segments import Hypothesis, StepSegment
from parity.verifier.recordings.steps.sides import NOISE, RecordedSide, make_sides, noise

RULES: dict[str, tuple[Callable[[RecordedSide], Iterable[Hypothesis]], ...]] = {
    "loss": (loss.hypotheses,),
    "clipped": (clipped.hypotheses,),
    "moments": (moments.hypotheses, moments.begun_elsewhere),
    "updated": (updated.hypotheses, updated.fitted),
}
"""Rules of each stage, tried one after another until both sides are explained."""
RELATIONS = {"gradients": relations.of_gradients, "learning rate": relations.of_rates}
SHARE = 0.02
"""Share of the difference of the sides that a residual must stay below."""
WORSE = 10
"""How many times the best residual the residual of another possible rule may be."""
INVISIBLE = 1
"""Roundings: a difference whose root mean square is no larger counts as none."""
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


class Fit(NamedTuple):
    """A hypothesis that reproduces a side."""

    choices: Mapping[str, str]
    residual: float


class Contrast:
    """The difference of two sides, and the test whether a recomputed value reproduces one of them."""

    def __init__(self, a: RecordedSide, b: RecordedSide, carried: float = 0.0) -> None:
        left, right = a.segment.result, b.segment.result
        common = [key for key in left if key in right and left[key].shape == right[key].shape]
        bounds = [
            {key: bound + carried * _rms(side.segment.result[key]) for key, bound in noise(side).items()}
            for side in (a, b)
        ]
        visible, seen = [], []
        for key in common:
            apart = left[key] - right[key]
            size = INVISIBLE * max(a.eps, b.eps) * _rms(left[key])
            if _rms(apart) > size:
                seen.append(key)
                bound = np.minimum(bounds[0][key], bounds[1][key])
                if _rms(apart / bound) > 1:
                    visible.append(key)
        self.common = common
        self.keys = visible or seen
        """Entries that differ."""
        self.difference = _norm(left[key] - right[key] for key in self.keys)
        self._bounds = {id(a): bounds[0], id(b): bounds[1]}

    def fit(self, side: RecordedSide, hypothesis: Hypothesis) -> Fit | None:
        """Return the residual of a side under a hypothesis; None if it is more than rounding."""
        rest = {}
        for key in self.common:
            value = hypothesis.value[key]
            if side.eps > epsilon("float64"):  # what is stored is rounded
                with np.errstate(over="ignore"):
                    value = value.astype(np.float32).astype(np.float64)
            rest[key] = value - side.segment.result[key]
            if not _rms(rest[key] / self._bounds[id(side)][key]) <= 1:  # nor if it is not a number
                return None
        residual = _norm(rest[key] for key in self.keys)
        return Fit(hypothesis.choices, residual) if residual < SHARE * self.difference else None

    def fits(self, side: RecordedSide, hypotheses: Iterable[Hypothesis]) -> list[Fit]:
        """Return the hypotheses that reproduce a side, without those much worse than the best."""
        found = [fit for each in hypotheses if (fit := self.fit(side, each)) is not None]
        of_rule: dict[tuple[tuple[str, str], ...], Fit] = {}
        for fit in found:
            rule = tuple(fit.choices.items())
            of_rule[rule] = min(of_rule.get(rule, fit), fit, key=lambda each: each.residual)
        fits = list(of_rule.values())
        best = min((fit.residual for fit in fits), default=0.0)
        rounding = 2 * side.eps * _norm(side.segment.result[key] for key in self.keys)
        return [fit for fit in fits if fit.residual <= WORSE * best + rounding]


def explain_step(a: StepSegment, b: StepSegment, carried: float = 0.0) -> PlaceVerdict:
    """Find why the same stage of two programs differs although everything before it agrees.

    A rule reproduces a side if its residual is rounding, and less than 2 % of the difference. A cause
    is a pair of rules that reproduce both sides and differ in as few choices as possible; among several
    such pairs, one that differs in kind is preferred to one that differs in a number, and short numbers
    to long ones.

    Elements whose gradient is only rounding are left out: see `steps.sides`.

    Args:
        a: the stage of one program.
        b: the same stage of the same step of the other program.
        carried: relative distance that what was explained before has put between the two sides.

    Returns:
        The causes, or a sentence if none is known; neither if nothing differs.
    """
    stage = a.stage
    if stage not in RULES and stage not in RELATIONS:
        return PlaceVerdict(
            unknown=f"{stage}: a stage that is recorded, not computed; there is no rule for it"
        )
    own = a.rates, b.rates
    if stage == "updated":  # a series that one side did not record is taken to be the other's
        a = a if a.group_rates else _with_rates(a, b)
        b = b if b.group_rates else _with_rates(b, a)
    if stage == "loss":  # if all before it agrees, so did the logits
        a = a if a.logits is not None else replace(a, logits=b.logits, parts=b.parts)
        b = b if b.logits is not None else replace(b, logits=a.logits, parts=a.parts)
    if a.clipped and b.clipped:
        a, b = replace(a, clipped_by_both=True), replace(b, clipped_by_both=True)
    if stage in ("moments", "updated") and (skipped := _skipped(a, b)):
        return PlaceVerdict(causes=(skipped,))
    sides = make_sides(a, b)
    if stage == "updated" and (unmoved := _unmoved(sides, own)):
        return PlaceVerdict(causes=(unmoved,))
    if stage in ("moments", "updated") and (other := other_optimizers(*sides)):
        return PlaceVerdict(unknown=other)
    if stage == "learning rate" and (rounded := _rounded(*sides)):
        return PlaceVerdict(causes=(rounded,))
    contrast = Contrast(*sides, carried)
    if stage == "gradients" and (missing := _missing(a, b, contrast.difference)):
        return PlaceVerdict(causes=(missing,))
    if not contrast.keys:
        return PlaceVerdict()
    if stage in RELATIONS:
        pairs = [
            (first, second)
            for left, right in RELATIONS[stage](*sides)
            if (first := contrast.fit(sides[0], left)) and (second := contrast.fit(sides[1], right))
        ]
        return _verdict(stage, contrast, pairs) or PlaceVerdict(unknown=_unknown(a, b, [], []))
    fits: tuple[list[Fit], list[Fit]] = ([], [])
    for rules in RULES[stage]:
        for known, side in zip(fits, sides, strict=True):
            known += contrast.fits(side, rules(side))
        pairs = [(first, second) for first in fits[0] for second in fits[1]]
        if stage == "loss" and max(side.eps for side in sides) > epsilon("float64"):
            pairs = [pair for pair in pairs if _is_told_by_a_single(*pair)]
        verdict = _verdict(stage, contrast, pairs)
        if verdict is not None:
            return verdict
    return PlaceVerdict(unknown=_unknown(a, b, *fits))


def _with_rates(one: StepSegment, other: StepSegment) -> StepSegment:
    return replace(one, rates=other.rates, group_rates=other.group_rates, index=other.index)


def _verdict(stage: str, contrast: Contrast, pairs: list[tuple[Fit, Fit]]) -> PlaceVerdict | None:
    if not pairs:
        return None
    first, second = min(pairs, key=lambda pair: _cost(pair[0].choices, pair[1].choices))
    aspects = sorted(_differing(first.choices, second.choices), key=_LITTLE.__contains__)
    if not aspects:
        return PlaceVerdict(
            unknown=f"{stage}: both follow the same rule ({_words(first.choices)}); the difference is in"
            " what went in, too small to be seen there",
            same=True,
        )
    return PlaceVerdict(
        causes=tuple(_cause(stage, contrast, first, second, aspect) for aspect in aspects)
    )


def _is_told_by_a_single(a: Fit, b: Fit) -> bool:
    """Return whether one loss in float32 can tell two rules apart: not if they differ in a smoothing
    that was fitted to the loss and in something else, as some such pair makes nearly any two losses."""
    aspects = _differing(a.choices, b.choices)
    return "smoothing" not in aspects or len(aspects) == 1


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    return [
        aspect
        for aspect in a
        if aspect in b and a[aspect] != b[aspect] and aspect not in _PLACES
        if aspect not in _LISTS or any(_alone(a, b, aspect))
        if aspect != "weight decay" or _is_seen(a, b)
    ]


def _is_seen(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    """Return whether the decay of one side would be seen in the other's update, if that has none."""
    for one, other in ((a, b), (b, a)):
        if LEAST in one and TAKEN in other:
            pairs = (each.rpartition(" ")[::2] for each in one[LEAST].split(", ") if each)
            least = {name: float(share) for name, share in pairs}
            leaves = other["decayed leaves"].split(", ")
            return any(float(other[TAKEN]) >= least.get(each, np.inf) for each in leaves)
    return True


def _alone(a: Mapping[str, str], b: Mapping[str, str], aspect: str) -> tuple[set[str], set[str]]:
    """Return what one side alone has in a list of leaves, without what either does not tell."""
    lists = [set(each[aspect].split(", ")) - {""} for each in (a, b)]
    untold = {name for each in (a, b) for name in each.get(UNTOLD, "").split(", ")}
    told = {each for each in lists[0] ^ lists[1] if each.partition(" ")[0] not in untold}
    return lists[0] & told, lists[1] & told


_PLACES = ("leaves", "groups", UNTOLD, TAKEN, LEAST, RATE)
_LISTS = ("decayed leaves", "rates of leaves")
_LITTLE = ("added to the norm",)
"""Choices that move the least, which are said last."""


def _cost(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[int, int, int]:
    """Return how unlikely it is that these are the two rules; among equals the first pair is taken."""
    aspects = _differing(a, b)
    numbers = sum(each not in _LISTS and _kind(a[each]) == _kind(b[each]) for each in aspects)
    texts = (text for each in (a, b) for aspect, text in each.items() if "leaves" not in aspect)
    return len(aspects), numbers, sum(map(_length, texts))


@lru_cache(maxsize=2**12)
def _kind(text: str) -> str:
    return NUMBER.sub("", text)


@lru_cache(maxsize=2**12)
def _length(text: str) -> int:
    return sum(digits(float(number[0])) for number in NUMBER.finditer(text))


def _cause(stage: str, contrast: Contrast, a: Fit, b: Fit, aspect: str) -> StepCause:
    chosen = [fit.choices[aspect] for fit in (a, b)]
    kinds = [f" {each}".partition(" clipped to")[0] for each in chosen]
    if aspect == "gradient" and all(" clipped to" in f" {each}" for each in chosen):
        value = "max value" if "each value" in kinds[0] else "max norm"
        stage, aspect = "clipped", "clipping" if kinds[0] != kinds[1] else value
        chosen = chosen if kinds[0] != kinds[1] else [each.rpartition(" ")[2] for each in chosen]
    where: tuple[str, ...] = ()
    if aspect in _LISTS:
        alone = _alone(a.choices, b.choices, aspect)
        where = tuple(sorted({each.partition(" ")[0] for each in alone[0] | alone[1]}))
        chosen = [", ".join(sorted(each)) or "none of them" for each in alone]
    else:
        for key in (*_PLACES[:2], _LISTS[0]):
            texts = {t for fit in (a, b) if (t := fit.choices.get(key))}
            if len(texts) == 1:
                where = tuple(texts.pop().split(", "))
    if aspect == "learning rate":
        rates = [fit.choices.get(RATE) for fit in (a, b)]
        chosen = [f"{text}, {rate}" if rate else text for text, rate in zip(chosen, rates, strict=True)]
    words = [f"{aspect} {text}" if NUMBER.fullmatch(text) else f"{aspect}: {text}" for text in chosen]
    residuals = a.residual, b.residual
    return named(stage, aspect, words, contrast.difference, where, residuals)  # pyright: ignore[reportArgumentType]


def _missing(a: StepSegment, b: StepSegment, difference: float) -> StepCause | None:
    """Return the cause that only one side has a gradient for parameters that both have; else None."""
    if not a.result or not b.result:
        return None
    both = set(a.parameters) & set(b.parameters)
    names = tuple(sorted(both & (set(a.result) ^ set(b.result))))
    if not names:
        return None
    lacking = [", ".join(name for name in names if name not in each.result) for each in (a, b)]
    words = [f"gradient: missing for {each or 'none of these'}" for each in lacking]
    return named("gradients", "gradient", words, difference, names)


def _unmoved(
    sides: tuple[RecordedSide, RecordedSide], rates: tuple[tuple[float, ...], ...]
) -> StepCause | None:
    """Return the cause that one side does not move parameters of which both have gradients; else None.

    Args:
        rates: the learning rates that each side itself recorded: at a rate of zero nothing moves.
    """
    moved = [
        {k: _rms(x - begun[k]) for k, x in side.segment.result.items() if k in begun}
        for side in sides
        for begun in (side.segment.parameters,)
    ]
    for i, side in enumerate(sides):
        own, other = side.segment, sides[1 - i]
        still = [k for k, by in moved[i].items() if not by and np.any(own.gradients.get(k, 0))]
        least = {k: NOISE * other.eps * _rms(own.parameters[k]) for k in still}
        names = tuple(sorted(k for k in still if moved[1 - i].get(k, 0) > least[k]))
        now = rates[i][own.index : own.index + 1]
        if names and (any(now) or (own.index and any(moved[i].values()))):
            words = ["moved: not these" if each == i else "moved: all" for each in (0, 1)]
            size = _norm(sides[0].segment.result[k] - sides[1].segment.result[k] for k in names)
            return named("updated", "moved", words, size, names)
    return None


def _skipped(a: StepSegment, b: StepSegment) -> StepCause | None:
    """Return the cause that one side left out an update that made the other's values no numbers; else
    None."""
    keys = [key for key in a.result if key in b.result]
    begun = [each.parameters if a.stage == "updated" else each.moments_before for each in (a, b)]
    finite = [all(np.isfinite(each.result[key]).all() for key in keys) for each in (a, b)]
    if finite[0] == finite[1]:
        return None
    after, old = (each[finite.index(True)] for each in ((a.result, b.result), begun))
    if not all(np.array_equal(after[k], old.get(k, np.zeros_like(after[k]))) for k in keys):
        return None
    words = [f"update: {'left out' if each else 'made'}" for each in finite]
    return named("updated", "update", words, np.inf, at=a.stage)


def _rounded(a: RecordedSide, b: RecordedSide) -> StepCause | None:
    """Return the cause that one side computes its learning rates in float32, which no bound on their
    rounding tells from the other side's; else None."""
    which = relations.in_float32(a, b)
    if which is None:
        return None
    words = [f"number type of the rate: {'float32' if which == i else 'float64'}" for i in (0, 1)]
    difference = _norm(a.segment.result[k] - b.segment.result[k] for k in a.segment.result)
    return named("learning rate", "number type of the rate", words, difference)


def other_optimizers(a: RecordedSide, b: RecordedSide) -> str | None:
    """Return a sentence if the sides keep different moments, so that their optimisers differ."""
    kinds = [[kind for kind in moments.kinds(side) if not kind.startswith("max_")] for side in (a, b)]
    if kinds[0] == kinds[1]:
        return None
    if not all(kinds):  # optax's state is the loop's to log
        which = "b" if kinds[0] else "a"
        return (
            f"{a.segment.stage}: no moments of {which} were recorded: its optimiser keeps none, unlike"
            ' the other one, or log them in each step: trace.log("moments", opt_state)'
        )
    left, right = (", ".join(each) for each in kinds)
    return (
        f"{a.segment.stage}: a's moments are {left}, b's are {right}; these are not the same optimiser"
    )


def _unknown(a: StepSegment, b: StepSegment, left: list[Fit], right: list[Fit]) -> str:
    stage, counts = a.stage, {a.count, b.count} - {None}
    text = f"{stage}: none of the known causes"
    if bool(left) != bool(right):
        known, other = ("a", "b") if left else ("b", "a")
        rule = _words((left or right)[0].choices)
        text += f"; {known} computes {rule}, {other} is not what any known rule computes"
    if len(counts) > 1:
        text += f"; a's optimiser is at update {a.count}, b's at update {b.count}"
    return text


def _words(choices: Mapping[str, str]) -> str:
    return "; ".join(f"{aspect} {text}" for aspect, text in choices.items())


def _rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2))) if array.size else 0.0


def _norm(arrays: Iterable[np.ndarray]) -> float:
    return float(np.sqrt(sum(float((each**2).sum()) for each in arrays)))
