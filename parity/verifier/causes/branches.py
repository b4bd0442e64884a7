"""Places that end in a product or a sum of two values, both of which B computes otherwise: each value is
judged on its own, and the place is named where both have one cause."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.several import VAGUE
from parity.verifier.programs.operation import Operation
from parity.verifier.search.exchange import is_a, rerun
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region, before_of

MOST_LAYOUTS = 6
"""How many layouts of A's operand are tried as B's."""
LARGEST = 96
"""Largest region, in operations, that is taken apart."""


def judge(
    gap: Gap, index: Index, judges: tuple[Callable[[Gap, Index], Explanation | None], ...]
) -> Explanation | None:
    """Return the one cause of both operands of the last operation; None where there is none."""
    if max(len(gap.a.operations), len(gap.b.operations)) > LARGEST:
        return None
    pair = _operands(gap)
    if pair is None:
        return None
    explanations: list[Explanation] = []
    for branch in pair:
        causes = (each for judge in judges if (each := judge(branch, index)) is not None)
        cause = next(causes, None)
        if cause is None:
            return None
        explanations.append(cause)
    name = explanations[0][0]
    if name != explanations[1][0] or name in ("", *VAGUE):
        return None
    return name, f"in both operands: {explanations[0][1]}"


def _operands(gap: Gap) -> list[Gap] | None:
    """Return both operands of the last operation as places, if A's operands give A's value."""
    a, b = _last(gap.a), _last(gap.b)
    if a is None or b is None or a.name != b.name:
        return None
    inside_a, inside_b = set(gap.a.operations), set(gap.b.operations)
    if not inside_a.issuperset(a.inputs) or not inside_b.issuperset(b.inputs):
        return None
    pairs = list(zip(a.inputs, b.inputs, strict=True))
    of_a, own = gap.a.program.values(a.inputs), gap.b.program.values(b.inputs)
    shapes = {y: gap.b.program.operations[y].shape for y in b.inputs}
    choices = [
        list(islice(arrangements(np.asarray(of_a[x]), shapes[y]), MOST_LAYOUTS)) for x, y in pairs
    ]
    for left in choices[0]:
        for right in choices[1]:
            given = dict(zip(b.inputs, (left, right), strict=True))
            if is_a(gap, rerun(gap.b, given=given)):
                return [
                    Gap(
                        Region(gap.a.program, x, before_of(gap.a.program, x, inside_a)),
                        Region(gap.b.program, y, before_of(gap.b.program, y, inside_b)),
                        given[y],
                        np.asarray(own[y]),
                    )
                    for x, y in pairs
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
