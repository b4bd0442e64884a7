"""A running sum that B does not multiply by a value that it has, as softmax in chunks does by what the
largest score grew by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

import numpy as np

from parity.measure.nearness import MOST
from parity.verifier.causes.cause import Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.search.exchange import closer, computing, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region, before_of

LARGEST = 96
"""Largest region, in operations, that is run again."""
MOST_TRIALS = 40
MOST_ENDS = 4
"""Last sums behind a largest number that are compared."""
BESIDE = 8
"""Operations behind a region among which the value is sought."""


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find a value that, multiplied to one operand of a line's sums, gives A's value; or what B has once
    its largest number so far is the largest of all, with which nothing grows any more."""
    if len(gap.b.operations) > LARGEST or gap.value_a.dtype.kind != "f":
        return None
    said = _said(gap.b, gap.value_a, gap.error)
    if said is not None or gap.repaired is None or not _is_largest(gap.b):
        return said
    behind = gap.b.behind(LARGEST)
    for op in [op for op in computing(behind) if op.name == "add"][: -MOST_ENDS - 1 : -1]:
        own, wanted = (np.asarray(p.values([op.index])[op.index]) for p in (gap.b.program, gap.repaired))
        error = distance(wanted, own)
        if error > MOST.norm:
            steps = before_of(gap.b.program, op.index, set(behind.operations))
            said = said or _said(Region(gap.b.program, op.index, steps), wanted, error)
    return said


def _is_largest(region: Region) -> bool:
    return region.program.maker(region.end).name in ("max", "maximum")


def _said(region: Region, wanted: np.ndarray, error: float) -> Explanation | None:
    program, inside = region.program, set(region.operations)
    sums = list(_groups(op for op in computing(region) if op.name == "add"))
    around = program.operations[min(inside, default=0) : region.end + BESIDE]
    factors = list(_groups(op for op in around if op.index not in inside and op.inputs))
    for adds, values, side in islice(product(sums, factors, (0, 1)), MOST_TRIALS):
        if len(adds) != len(values) or adds[0].shape != values[0].shape:
            continue
        if values[0].index in adds[0].inputs or not all(_is_of(each, side) for each in adds):
            continue
        known = program.values([op.index for op in values])
        changed = {
            add.index: replace(add, run=_scaled(add, side, np.asarray(known[value.index])))
            for add, value in zip(adds, values, strict=True)
        }
        value = rerun(region, changed)
        if value is not None and closer(wanted, value, error):
            message = f"only A multiplies the sum at {adds[0].source} by the value of {values[0].source}"
            return "factor left out", message
    return None


def _groups(operations: Iterator[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations of one line that are alike, once for each step of a loop: two or more."""
    groups: dict[tuple[object, ...], list[Operation]] = {}
    for op in operations:
        if op.source is not None and op.mark is not None and not op.is_layout:
            groups.setdefault((op.name, op.source, op.shape), []).append(op)
    yield from (each for each in groups.values() if len(each) > 1)


def _is_of(add: Operation, side: int) -> bool:
    return len(add.operands) == 2 and isinstance(add.operands[side], Ref)


def _scaled(add: Operation, side: int, factor: np.ndarray):
    run = add.run
    assert run is not None

    def scaled(operands):
        operands = list(operands)
        operands[side] = np.asarray(operands[side]) * factor
        return run(operands)

    return scaled
