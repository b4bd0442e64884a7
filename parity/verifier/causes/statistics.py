"""What a norm's statistics are taken over, and whether its mean is taken off: groups, axes, RMS norm.

B's normalised value is found by its numbers, whatever operations make it. It is then exchanged for the
one that A's axes or groups give, with B's epsilon and B's gain, and B must have A's value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.normalised import REDUCTIONS, Norm, counts_of, found, norms, shaped
from parity.verifier.search.exchange import closer, computing, is_a, is_b, outside, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 48
"""Largest region, in operations, whose norms are sought."""
MOST_ELEMENTS = 1 << 22
"""Most elements of a value that is normalised in other ways."""
_ROOTS = frozenset(["sqrt", "rsqrt", "pow"])
FOLLOWING = 12
"""Operations behind a value within which it is normalised."""


@np.errstate(all="ignore")
def judge(gap: Gap, index: Index) -> Explanation | None:
    """Recognise a norm over other axes, over other groups, with its mean or without."""
    if gap.value_a.size > MOST_ELEMENTS or not all(map(_normalises, (gap.a, gap.b))):
        return None
    for own in found(gap.b, index):
        shape = gap.b.program.operations[own.operation].shape
        for norm in norms(own.x.shape, counts_of(gap.a)):
            if (norm.centred != own.norm.centred) == (norm[:4] != own.norm[:4]):
                continue  # nothing is another, or more than one thing
            value = (own.gain * norm.of(own.x, own.epsilon)).reshape(shape)
            if is_a(gap, rerun(gap.b, given={own.operation: value})):
                return _explain(own.norm, norm)
    return None


def _normalises(region: Region) -> bool:
    return _has(region, _ROOTS) and _has(region, REDUCTIONS)


def _has(region: Region, names: frozenset[str]) -> bool:
    return len(region.operations) <= LARGEST and any(op.name in names for op in computing(region))


@np.errstate(all="ignore")
def moments(gap: Gap, index: Index) -> Explanation | None:
    """Recognise a mean or a variance over other axes or groups, repeated for what reads it."""
    if not _has(gap.a, REDUCTIONS) or not _has(gap.b, REDUCTIONS) or gap.value_a.dtype.kind != "f":
        return None
    region, operations = gap.b, gap.b.program.operations
    for i in outside(region):
        if not gap.value_b.size < operations[i].size <= MOST_ELEMENTS or not index.meets(operations[i]):
            continue
        for x in shaped(region, i):
            of_a, of_b = (
                [each for each in norms(x.shape, counts_of(side)) if each.centred]
                for side in (gap.a, gap.b)
            )
            for own, norm in product(of_b, of_a):
                wanted = dict(_moments(x, norm, own))
                for name, value in _moments(x, own, norm):
                    if (
                        own != norm
                        and value.size == gap.value_b.size
                        and is_b(gap, value.reshape(gap.value_b.shape))
                        and _are(gap.value_a, wanted[name], gap.error)
                    ):
                        return _explain(own, norm)
    return None


def _are(wanted: np.ndarray, value: np.ndarray, error: float) -> bool:
    """Return whether a value has the wanted numbers; which of them is repeated first is not known."""
    return closer(np.sort(wanted, axis=None), np.sort(value, axis=None), error)


def _moments(x: np.ndarray, norm: Norm, other: Norm) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a norm's statistics, once along the axes over which both norms take them."""
    both = tuple(0 if i in norm.axes and i in other.axes else slice(None) for i in range(x.ndim))
    mean, square = norm.mean(x), norm.mean(x * x)
    for name, value in (("mean", mean), ("square", square), ("variance", square - mean * mean)):
        yield name, value[both]


@np.errstate(all="ignore")
def mean_off(gap: Gap, index: Index) -> Explanation | None:
    """Recognise a mean that one side alone takes off before it normalises."""
    for region, other in ((gap.a, gap.b), (gap.b, gap.a)):
        if computing(other) or not _has(region, REDUCTIONS):
            continue
        x, centred = (gap.value_b, gap.value_a) if region is gap.a else (gap.value_a, gap.value_b)
        axes = {n.axes for n in norms(x.shape, counts_of(region)) if n.split < 0}
        axes = {each for each in axes if is_the(gap, x - x.mean(each, keepdims=True), centred)}
        behind = other.behind(FOLLOWING)
        for each in found(behind, index) if axes and _normalises(behind) else ():
            plain = not each.norm.centred and each.norm.split < 0
            if plain and each.norm.axes in axes and np.array_equal(each.x, x):
                return _explain_mean(of_b=region is gap.b)
    return None


def is_the(gap: Gap, value: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether a value is the one that a place has on one of its sides."""
    return is_a(gap, value) if wanted is gap.value_a else is_b(gap, value)


def _explain(own: Norm, wanted: Norm) -> Explanation:
    if own.centred != wanted.centred:
        return _explain_mean(of_b=own.centred)
    if _are_groups(own, wanted):
        many = [
            f"{math.prod(n.shape) // n.together // n.shape[0]} of {n.together}" for n in (own, wanted)
        ]
        return "groups", f"{many[0]} numbers where A has {many[1]}"
    return "axis", f"normalised over {_over(own)} of {list(own.shape)}, A's over {_over(wanted)}"


def _explain_mean(*, of_b: bool) -> Explanation:
    if of_b:
        return "layer norm for RMS norm", "only B takes the mean off"
    return "RMS norm for layer norm", "only A takes the mean off"


def _are_groups(one: Norm, other: Norm) -> bool:
    """Return whether two norms differ in the number of groups of one axis, which may be one group, or as
    many as numbers, in one of them."""
    axis = max(one.split, other.split)
    splits = {one.split, other.split} - {-1}
    return splits == {axis} and {*one.axes, axis} == {*other.axes, axis}


def _over(norm: Norm) -> str:
    text = (
        f"axes {list(norm.axes)}" if len(norm.axes) > 1 else f"axis {norm.axes[0]}" if norm.axes else ""
    )
    groups = f"each of {norm.groups} groups of axis {norm.split}" if norm.split >= 0 else ""
    return " and ".join(filter(None, (text, groups)))


_LAYER = "(h := x - x.mean(-1, keepdims=True)) * lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6) @ w"
_RMS = "x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) @ w"
CAUSES = (
    Cause(
        "groups",
        "B normalises in another number of groups.",
        judge,
        "grouped(x @ w, 2) @ v",
        "grouped(x @ w, 3) @ v",
    ),
    Cause(
        "RMS norm for layer norm",
        "B normalises without taking the mean off.",
        mean_off,
        _LAYER,
        _RMS,
    ),
    Cause(
        "layer norm for RMS norm",
        "B takes the mean off before it normalises, A does not.",
        mean_off,
        _RMS,
        _LAYER,
    ),
)
