"""Places that end in a product or a sum of two values, both of which B computes otherwise: each value is
judged on its own, and the place is named where both have one cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from parity.verifier.causes.cause import Said
from parity.verifier.causes.several import VAGUE
from parity.verifier.programs.operation import Operation
from parity.verifier.search.exchange import is_a, rerun
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found, Region, before_of

MOST_WAYS = 6
"""How many layouts of A's operand are tried as B's."""
LARGEST = 96
"""Largest region, in operations, that is taken apart."""


def judge(
    found: Found, index: Index, judges: tuple[Callable[[Found, Index], Said | None], ...]
) -> Said | None:
    """Return the one cause of both operands of the last operation; None where there is none."""
    if max(len(found.a.operations), len(found.b.operations)) > LARGEST:
        return None
    pair = _operands(found)
    if pair is None:
        return None
    said: list[Said] = []
    for branch in pair:
        causes = (each for judge in judges if (each := judge(branch, index)) is not None)
        cause = next(causes, None)
        if cause is None:
            return None
        said.append(cause)
    name = said[0][0]
    if name != said[1][0] or name in ("", *VAGUE):
        return None
    return name, f"in both operands: {said[0][1]}"


def _operands(found: Found) -> list[Found] | None:
    """Return both operands of the last operation as places, if A's operands give A's value."""
    a, b = _last(found.a), _last(found.b)
    if a is None or b is None or a.name != b.name:
        return None
    inside_a, inside_b = set(found.a.operations), set(found.b.operations)
    if not inside_a.issuperset(a.inputs) or not inside_b.issuperset(b.inputs):
        return None
    ways = [list(islice(_ways(found, x, y), MOST_WAYS)) for x, y in zip(a.inputs, b.inputs, strict=True)]
    own = found.b.program.values(b.inputs)
    for left in ways[0]:
        for right in ways[1]:
            given = dict(zip(b.inputs, (left, right), strict=True))
            if is_a(found, rerun(found.b, given=given)):
                return [
                    Found(
                        Region(found.a.program, x, before_of(found.a.program, x, inside_a)),
                        Region(found.b.program, y, before_of(found.b.program, y, inside_b)),
                        given[y],
                        np.asarray(own[y]),
                    )
                    for x, y in zip(a.inputs, b.inputs, strict=True)
                ]
    return None


def _last(region: Region) -> Operation | None:
    """Return the operation on two operands that makes the value at a region's end."""
    program, index = region.program, region.end
    while index in region.operations:
        op = program.operations[index]
        if not op.is_layout or not op.inputs:
            return op if len(set(op.inputs)) == len(op.operands) == 2 else None
        index = op.inputs[0]
    return None


def _ways(found: Found, x: int, y: int) -> Iterator[np.ndarray]:
    value = np.asarray(found.a.program.values([x])[x])
    return arrangements(value, found.b.program.operations[y].shape)
