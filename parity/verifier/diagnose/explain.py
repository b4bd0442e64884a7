"""Why two segments with the same input have different results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.diagnose.causes import advice
from parity.verifier.diagnose.cutting import UNKNOWN
from parity.verifier.diagnose.norm_place import norm_place
from parity.verifier.diagnose.search import Reproduction, narrow_type, reproductions
from parity.verifier.diagnose.segment import Segment
from parity.verifier.diagnose.verdict import Cause, Verdict

_MOST = 3  # causes that explain a difference equally well
_ALIKE = 1e-3  # two tensors that differ by less are the same tensor, seen in two programs


def explain(a: Segment, b: Segment) -> Verdict:
    """Name what A and B do differently, from what they were given and what they made of it alone.

    Returns:
        The causes that reproduce both results, best first: those in which the fewest things differ. None
        and no sentence if nothing differs; a sentence if no known cause explains it.
    """
    place = f"{a.module.path or 'the model'}: {a.target}"
    if a.result.shape != b.result.shape:
        shapes = f"{a.result.shape} in A, {b.result.shape} in B"
        return Verdict(unknown=f"{place} has another shape: {shapes}")
    if not (np.isfinite(a.result).all() and np.isfinite(b.result).all()):
        return Verdict(unknown=f"{place} is not finite")
    difference = float(np.linalg.norm(a.result - b.result))
    if difference == 0.0:
        return Verdict()
    named = _named_as(a, b)
    mine, theirs = reproductions(a, difference), reproductions(named, difference)
    if mine and not theirs:  # no few departures from the usual, but perhaps from what the other does
        theirs = reproductions(named, difference, mine)
    elif theirs and not mine:
        mine = reproductions(a, difference, theirs)
    pairs = sorted(_pairs(mine, theirs), key=_rank)
    differing = [pair for pair in pairs if _differing(*pair)]
    best = [pair for pair in differing if _rank(pair)[:3] == _rank(differing[0])[:3]][:_MOST]
    causes = [_cause(a, b, left, right, difference) for left, right in best]
    if not causes:
        causes = list(_precision(a, b, mine, theirs, difference))
    if causes:
        return Verdict(tuple({(c.name, c.a, c.b): c for c in causes}.values()))
    unknown = f"{place}: {_unknown(a, b, mine, theirs, bool(pairs))}"
    return Verdict(unknown=unknown + _hint(a, b, difference))


def _named_as(a: Segment, b: Segment) -> Segment:
    """B with each tensor called as A calls the tensor of the same value."""
    names: dict[str, np.ndarray] = {}
    for name, array in b.before.items():
        size = _ALIKE * float(np.linalg.norm(array))
        alike = [
            other
            for other, x in a.before.items()
            if x.shape == array.shape and np.linalg.norm(x - array) <= size
        ]
        own = name if name in alike or not alike else alike[0]
        while own in names:  # the same value twice: both names stay
            own = f"{own} (again)"
        names[own] = array
    return replace(b, before=names)


Found = tuple[Reproduction, Reproduction]


def _pairs(mine: list[Reproduction], theirs: list[Reproduction]) -> Iterator[Found]:
    for left in mine:
        for right in theirs:
            same_aspects = left.options.keys() == right.options.keys()
            if same_aspects and left.computation.kind == right.computation.kind:
                yield left, right


def _rank(pair: Found) -> tuple[float, ...]:
    left, right = pair
    return (
        len(_differing(left, right)),
        left.departures + right.departures,
        _bucket(left) + _bucket(right),
        _unusual(left) + _unusual(right),
    )


def _bucket(found: Reproduction) -> int:
    """How far a residual is above rounding, in powers of ten: what is less says nothing."""
    return max(0, round(math.log10(max(found.residual, 1e-300) / max(found.rounding, 1e-300))))


def _unusual(found: Reproduction) -> int:
    """How far down the lists its options stand."""
    ranks = (
        [o.label for o in aspect.options].index(found.label(aspect.name))
        for aspect in found.computation.aspects
    )
    return sum(ranks)


def _differing(left: Reproduction, right: Reproduction) -> list[str]:
    return [name for name in left.options if left.label(name) != right.label(name)]


def _cause(a: Segment, b: Segment, left: Reproduction, right: Reproduction, difference: float) -> Cause:
    differing = _differing(left, right)
    causes = {name: _slug(left, right, name) for name in differing}
    slugs = list(dict.fromkeys(causes.values()))
    lines = "; ".join(advice(a, b, left, right, name, slug) for name, slug in causes.items())
    words = [", ".join(each.label(name) for name in differing) for each in (left, right)]
    place = norm_place(a, b, slugs)
    if place is not None:
        slugs, words, lines = ["norm-place"], [place.a, place.b], place.advice
    return Cause(
        name=" + ".join(slugs),
        stage="forward",
        where=tuple(dict.fromkeys((a.module.path, b.module.path))),
        a=words[0],
        b=words[1],
        residual_a=left.residual,
        residual_b=right.residual,
        difference=difference,
        advice=lines,
    )


def _slug(left: Reproduction, right: Reproduction, aspect: str) -> str:
    computation = left.computation
    chosen = next(each for each in computation.aspects if each.name == aspect)
    if computation.slug and aspect == computation.aspects[0].name:
        values = [{n: o.value for n, o in each.options.items()} for each in (left, right)]
        return computation.slug(*values)
    ordinary = chosen.options[0].label
    departing = [each.options[aspect] for each in (left, right) if each.label(aspect) != ordinary]
    return next((option.slug for option in departing if option.slug), chosen.slug)


def _precision(
    a: Segment, b: Segment, mine: list[Reproduction], theirs: list[Reproduction], difference: float
) -> Iterator[Cause]:
    """One side computed in a narrower type than the recording has."""
    for exact, narrow, every in ((a, b, mine), (b, a, theirs)):
        for found in every:
            named = _narrow(narrow, found)
            if named is None:
                continue
            dtype, residual = named
            words, rests = (
                (f"computed in {exact.dtype}", f"computed in {dtype}"),
                (found.residual, residual),
            )
            if narrow is a:
                words, rests = words[::-1], rests[::-1]
            yield Cause(
                name="compute-type",
                stage="forward",
                where=tuple(dict.fromkeys((a.module.path, b.module.path))),
                a=words[0],
                b=words[1],
                residual_a=rests[0],
                residual_b=rests[1],
                difference=difference,
                advice=f"{'A' if narrow is a else 'B'}: compute in {exact.dtype}, without autocast",
            )
            return


def _narrow(narrow: Segment, found: Reproduction) -> tuple[str, float] | None:
    if found.departures:
        return None
    computed = found.computation.value(found.options)
    if computed is None or computed.shape != narrow.result.shape:
        return None
    return narrow_type(narrow, computed)


def _hint(a: Segment, b: Segment, difference: float) -> str:
    """A narrower type in the middle of a computation rounds otherwise in every implementation: it
    cannot be recomputed to the last digit, and so is no cause that can be named, but its size is
    telling."""
    share = difference / max(float(np.linalg.norm(a.result)), 1e-300)
    if {a.dtype, b.dtype} != {"float64"} or not 0.01 < share / epsilon("float32") < 100:
        return ""
    return (
        f"; the difference, {share:.1e}, is of the size of float32 rounding: one of the two may"
        " compute a part of this in float32"
    )


def _unknown(a: Segment, b: Segment, mine: list, theirs: list, same: bool) -> str:
    if same:
        unequal = [
            name
            for name in a.parameters.keys() & b.parameters.keys()
            if not np.array_equal(a.parameters[name], b.parameters[name])
        ]
        what = f"parameters {', '.join(sorted(unequal))}" if unequal else "inputs"
        return f"A and B compute the same function, but their {what} differ"
    for name, segment, found, other in (("A", a, mine, theirs), ("B", b, theirs, mine)):
        if not found and other:
            best = min(other, key=lambda each: each.departures)
            words = ", ".join(option.label for option in best.options.values())
            rest = "B" if name == "A" else "A"
            there = name if segment.module.kind == UNKNOWN else f"{name}'s {segment.module.name}"
            return (
                f"{rest} computes {best.computation.kind} ({words}), but what {there} computes is not in"
                " the catalogue; `parity locate` shows the lines"
            )
    kinds = [f"{each.module.name}" for each in (a, b) if each.module.kind != UNKNOWN]
    what = f"what {' and '.join(kinds)} compute" if len(kinds) == 2 else "what both compute here"
    return f"{what} is not in the catalogue; `parity locate` shows the lines"
