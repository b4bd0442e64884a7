"""Axes that B splits into two, the outer of which should have been the inner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.causes.cause import Explanation
from parity.verifier.search.exchange import closer_moved, outside, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 48
"""Largest region, in operations, that is run again."""
MOST_BEFORE = 6
"""Moves in front of what a region reads that are gone back."""
MOST_ELEMENTS = 1 << 22
"""Most elements of a value that is split otherwise."""


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise a split of an axis that, made the other way round, gives A's value: queries, keys and
    values of each head where A has the heads of all queries, then of all keys."""
    if len(gap.b.operations) > LARGEST:
        return None
    program = gap.b.program
    for region, index in _reshapes(gap.b):
        op = program.operations[index]
        source = program.values([op.inputs[0]])[op.inputs[0]]
        if not isinstance(source, np.ndarray) or source.size > MOST_ELEMENTS:
            continue
        for axis in range(len(op.shape) - 1):
            outer, inner = op.shape[axis : axis + 2]
            if 1 in (outer, inner) or outer == inner or not _is_split(source.shape, op.shape, axis):
                continue
            shape = (*op.shape[:axis], inner, outer, *op.shape[axis + 2 :])
            value = rerun(region, given={index: source.reshape(shape).swapaxes(axis, axis + 1)})
            if closer_moved(gap.value_a, value, gap.error):
                message = f"{outer * inner} = {outer} x {inner} where A has {inner} x {outer}"
                return "axis split the other way round", message
    return None


def _is_split(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> bool:
    """Return whether a reshape makes an axis and the next one of a single axis, with what follows it."""
    start = int(np.prod(after[:axis]))
    both = after[axis] * after[axis + 1]
    starts = [int(np.prod(before[:i])) for i in range(len(before))]
    return any(each == start and n % both == 0 for each, n in zip(starts, before, strict=True))


def _reshapes(region: Region) -> Iterator[tuple[Region, int]]:
    """Yield the reshapes of a region, and those among the moves in front of it, with a region that
    begins behind them."""
    program = region.program
    for index in region.operations:
        if program.operations[index].name == "reshape":
            yield region, index
    for read in outside(region):
        index, inside = read, list(region.operations)
        for _ in range(MOST_BEFORE):
            op = program.operations[index]
            if not op.is_layout or len(op.inputs) != 1:
                break
            if op.name == "reshape":
                yield Region(program, region.end, sorted(inside)), index
            inside, index = [*inside, index], op.inputs[0]
