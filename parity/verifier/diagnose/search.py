"""Which of a computation's choices reproduce what one side computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.diagnose.catalogue import by_module, computations
from parity.verifier.diagnose.catalogue.computation import Computation, Option
from parity.verifier.diagnose.catalogue.numerics import rounded
from parity.verifier.diagnose.segment import Segment

SHARE = 0.02
"""A residual is at most this share of the difference that is to be explained."""
LARGE = 300_000
"""Numbers in a segment beyond which choices are tried on the first image before they are on all."""

WORK = 20_000_000
"""Numbers that may be computed for the sake of choices that depart in several aspects at once."""

_GRAINS = {"float64": 4096.0, "float32": 256.0}  # in epsilons; of narrower types, 4
_ROUNDINGS = 4.0  # epsilons: what the last operation leaves, whatever came before
_ROUNDED_SHARE = 0.1
_NARROW = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Reproduction:
    """A choice under which a side's result comes out."""

    computation: Computation
    options: Mapping[str, Option]
    departures: int
    residual: float
    """||recomputed - result||."""
    rounding: float
    """What the rounding of a few operations may leave."""

    def label(self, aspect: str) -> str:
        """What it does in one aspect."""
        return self.options[aspect].label


def _rounding(segment: Segment) -> float:
    return _ROUNDINGS * epsilon(segment.dtype) * float(np.linalg.norm(segment.result))


def limit(segment: Segment, difference: float) -> float:
    """The largest residual that counts as reproduced.

    A few hundred epsilons of the type, or a small share of the difference if that is less, so that no
    wrong cause can explain it; where the difference itself is near the rounding of a single operation,
    a larger share of it.
    """
    size, eps = float(np.linalg.norm(segment.result)), epsilon(segment.dtype)
    grain = _GRAINS.get(segment.dtype, 4.0) * eps * size
    return max(min(grain, SHARE * difference), min(_rounding(segment), _ROUNDED_SHARE * difference))


def reproductions(
    segment: Segment, difference: float, others: Sequence[Reproduction] = ()
) -> list[Reproduction]:
    """The choices that reproduce the result, of each computation those with the fewest departures.

    Args:
        others: how the other side's result came out; departures are counted from there, and what has
            none is left out.
    """
    small = first_image(segment)
    found = []
    for module in by_module(small):
        for usual in module:
            computation = _like(usual, others) if others else usual
            if computation is None:
                continue
            passed = _fewest(segment, small, computation, difference)
            found += passed
            if passed:
                break
    return found


def _like(computation: Computation, others: Sequence[Reproduction]) -> Computation | None:
    """The same with what the other side does as the ordinary; None where that departs from nothing."""
    for other in others:
        alike = other.computation.kind == computation.kind
        if (
            not other.departures
            or not alike
            or other.options.keys() != {a.name for a in computation.aspects}
        ):
            continue
        aspects = tuple(
            replace(a, options=tuple(sorted(a.options, key=lambda o: o.label != other.label(a.name))))
            for a in computation.aspects
        )
        return replace(computation, aspects=aspects, unusual=computation.unusual + other.departures)
    return None


def _fewest(
    segment: Segment, small: Segment, computation: Computation, difference: float
) -> list[Reproduction]:
    """The choices of the fewest departures that reproduce a part of the result, and then the whole."""
    share = difference / max(float(np.linalg.norm(segment.result)), 1e-300)
    for departures in range(computation.departures + 1):
        if departures > 1 and computation.count(departures) * small.result.size > WORK:
            break
        passed = list(_reproduced(small, computation, departures, share))
        if small is not segment:
            passed = [c for each in passed if (c := _confirmed(segment, each, difference))]
        if passed:
            return passed
    return []


def narrow_type(segment: Segment, computed: np.ndarray) -> tuple[str, float] | None:
    """The narrower type that a result was computed in, if it holds only numbers of that type.

    Args:
        computed: what comes out in float64.

    Returns:
        The type, and the distance to `computed`: of its roundings, too small for any other cause.
    """
    size = float(np.linalg.norm(computed))
    residual = float(np.linalg.norm(computed - segment.result))
    for dtype in _NARROW:
        coarser = epsilon(dtype) > epsilon(segment.dtype)
        if coarser and np.array_equal(rounded(segment.result, dtype), segment.result):
            factor = 64.0 if dtype == "float32" else 4.0
            if residual <= factor * epsilon(dtype) * size:
                return dtype, residual
    return None


def first_image(segment: Segment) -> Segment:
    """The part of a large segment that belongs to the first image; the segment itself if it is small."""
    size = segment.result.size + sum(each.size for each in segment.before.values())
    batch = segment.result.shape[0] if segment.result.ndim else 1
    if size <= LARGE or batch == 1:
        return segment
    before, given = (
        {name: x[:1] if x.ndim > 1 and len(x) == batch else x for name, x in tensors.items()}
        for tensors in (segment.before, segment.given)
    )
    return replace(segment, result=segment.result[:1], before=before, given=given)


def _reproduced(
    segment: Segment, computation: Computation, departures: int, share: float
) -> Iterator[Reproduction]:
    # on a part of the images the difference is taken to be the same share of the result
    largest = limit(segment, share * float(np.linalg.norm(segment.result)))
    for options in computation.choices(departures):
        residual = _residual(segment, computation, options)
        if residual is not None and residual <= largest:
            unusual = departures + computation.unusual
            yield Reproduction(computation, options, unusual, residual, _rounding(segment))


def _confirmed(segment: Segment, found: Reproduction, difference: float) -> Reproduction | None:
    kind = found.computation.kind
    computation = next((each for each in computations(segment) if each.kind == kind), None)
    if computation is None:
        return None
    options = {}
    for aspect in computation.aspects:
        chosen = found.options[aspect.name]
        same = (option for option in aspect.options if option.label == chosen.label)
        options[aspect.name] = next(same, chosen)  # a number fitted to one image may read otherwise
    residual = _residual(segment, computation, options)
    if residual is None or residual > limit(segment, difference):
        return None
    return Reproduction(computation, options, found.departures, residual, _rounding(segment))


def _residual(segment: Segment, computation: Computation, options: Mapping[str, Option]) -> float | None:
    value = computation.value(options)
    if value is None or value.shape != segment.result.shape:
        return None
    residual = float(np.linalg.norm(value - segment.result))
    return residual if np.isfinite(residual) else None
