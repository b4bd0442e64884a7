"""Places whose last operations are the same on both sides: what they read differs, in one operand, or in
two alike, as queries and keys. Each operand is judged on its own, and named where all have one cause."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product

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
    """Return the one cause of what the last operation reads otherwise; None where there is none."""
    if max(len(gap.a.operations), len(gap.b.operations)) > LARGEST:
        return None
    branches = _operands(gap)
    if not branches:
        return None
    explanations: list[Explanation] = []
    for branch in branches:
        causes = (each for one in judges if (each := one(branch, index)) is not None)
        cause = next(causes, None) or judge(branch, index, judges)
        if cause is None:
            return None
        explanations.append(cause)
    name, message = explanations[0]
    if name in ("", *VAGUE) or any(each[0] != name for each in explanations):
        return None
    return name, message if len(branches) == 1 else f"in both operands: {message}"


def _operands(gap: Gap) -> list[Gap]:
    """Return what the last operation reads otherwise in B as places, if A's values there give A's."""
    a, b = _last(gap.a), _last(gap.b)
    if a is None or b is None or a.name != b.name or len(a.inputs) != len(b.inputs):
        return []
    for inputs in (a.inputs, a.inputs[::-1]) if a.name in ("add", "mul") else (a.inputs,):
        if branches := _paired(gap, list(zip(inputs, b.inputs, strict=True))):
            return branches
    return []


def _paired(gap: Gap, pairs: list[tuple[int, int]]) -> list[Gap]:
    """Return the pairs of operands that differ as places, if A's values there give A's."""
    inside_a, inside_b = set(gap.a.operations), set(gap.b.operations)
    inner = [(x, y) for x, y in pairs if x in inside_a and y in inside_b]
    if not inner or any((x in inside_a) != (y in inside_b) for x, y in pairs):
        return []
    of_a = gap.a.program.values([x for x, _ in inner])
    own = gap.b.program.values([y for _, y in inner])
    choices = [
        [*islice(arrangements(np.asarray(of_a[x]), np.shape(own[y])), MOST_LAYOUTS)] for x, y in inner
    ]
    for chosen in product(*choices):
        given = dict(zip((y for _, y in inner), chosen, strict=True))
        if is_a(gap, rerun(gap.b, given=given)):
            return [
                Gap(
                    Region(gap.a.program, x, before_of(gap.a.program, x, inside_a)),
                    Region(gap.b.program, y, before_of(gap.b.program, y, inside_b)),
                    given[y],
                    np.asarray(own[y]),
                )
                for x, y in inner
            ]
    return []


def _last(region: Region) -> Operation | None:
    """Return the operation that makes the value at a region's end, but for moves."""
    program, index = region.program, region.end
    while index in region.operations:
        op = program.operations[index]
        if not op.is_layout or not op.inputs:
            return op if len(set(op.inputs)) == len(op.inputs) else None
        index = op.inputs[0]
    return None
