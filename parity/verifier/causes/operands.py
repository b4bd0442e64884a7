"""Operands of B in another order: exchanged with each other, or with their own elements moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.exchange import is_a, outside, rerun, where
from parity.verifier.search.layouts import long_axes
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.region import Gap, Region

LARGEST = 24
"""Largest region, in operations, that is run again."""
MOST_ELEMENTS = 1 << 18
"""Most elements of a value whose orders are tried."""
MOST_READ = 6
MOST_BEFORE = 8
"""Moves in front of an operand that are gone back."""


def exchanged(gap: Gap, _: Index) -> Explanation | None:
    """Recognise two values that B reads in each other's place."""
    region, program = gap.b, gap.b.program
    if len(region.operations) > LARGEST:
        return None
    values = _read(region)
    groups: dict[bytes, list[int]] = {}  # a value may be computed again for each use
    for i, value in values.items():
        groups.setdefault(value.tobytes(), []).append(i)
    for ours, theirs in combinations(groups.values(), 2):
        one, other = values[ours[0]], values[theirs[0]]
        if long_axes(one.shape) != long_axes(other.shape):
            continue
        given = {i: other.reshape(values[i].shape) for i in ours}
        given |= {i: one.reshape(values[i].shape) for i in theirs}
        if is_a(gap, rerun(region, given=given)):
            names = [where(program.operations[group[0]]) for group in (ours, theirs)]
            both = " and ".join(names) if names[0] != names[1] else f"two values of {names[0]}"
            return "operands exchanged", f"{both} have changed places"
    return None


def moved(gap: Gap, _: Index) -> Explanation | None:
    """Recognise a value that B reads backwards along some axes, as pictures in BGR."""
    program = gap.b.program
    if len(gap.b.operations) > LARGEST or program.maker(gap.b.end).name in ("max", "min"):
        return None  # the largest of some numbers is that of others as well
    for index in _read(gap.b):
        found = [
            (program.operations[source], axes)
            for region, source in _moves(gap.b, index)
            if (axes := _backwards(gap, region, source)) is not None
        ]
        if found:  # what runs backwards still does after it is moved: what turned it round says more
            op, axes = next((each for each in found if each[0].name == "flip"), found[0])
            which = " and ".join(map(str, axes))
            text = f"axis {which} of {list(op.shape)} runs" if len(axes) == 1 else (
                f"axes {which} of {list(op.shape)} run"
            )  # fmt: skip
            return "reversed", f"{text} backwards in {where(op)}"
    return None


def _backwards(gap: Gap, region: Region, source: int) -> tuple[int, ...] | None:
    """Return the axes along which a value that a region reads runs backwards; None if along none."""
    program = gap.b.program
    if program.maker(source).name == "sort" or program.operations[source].mark is None:
        return None  # backwards, the same place of what is sorted is another rank
    value = np.asarray(program.values([source])[source])
    turned = lambda axes: rerun(region, given={source: np.flip(value, axes)})  # noqa: E731
    return next((axes for axes in _axes(value) if is_a(gap, turned(axes))), None)


def _read(region: Region) -> dict[int, np.ndarray]:
    """Return the first values that a region reads and that may stand in another order."""
    program = region.program
    values = {}
    for i in outside(region):
        value = program.values([i])[i]
        array = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim
        if array and value.size <= MOST_ELEMENTS and not is_weak(program.operations[i]):
            values[i] = value
    return dict(list(values.items())[:MOST_READ])


def _moves(region: Region, index: int) -> Iterator[tuple[Region, int]]:
    """Yield a region with more and more of the moves that put one of its operands in order, and what
    these read."""
    program, inside = region.program, list(region.operations)
    yield region, index
    for _ in range(MOST_BEFORE):
        op = program.operations[index]
        if not op.is_layout or len(op.inputs) != 1:
            return
        inside, index = [index, *inside], op.inputs[0]
        yield replace(region, operations=sorted(inside)), index


def _axes(value: np.ndarray) -> Iterator[tuple[int, ...]]:
    long = [axis for axis, n in enumerate(value.shape) if n > 1]
    yield from ((axis,) for axis in long)
    yield from combinations(long, 2)


CAUSES = (
    Cause(
        "operands exchanged",
        "Two values that B reads have changed places.",
        exchanged,
        "jnp.exp(x @ w) * (x @ w - x @ v)",
        "jnp.exp(x @ v) * (x @ v - x @ w)",
    ),
)
