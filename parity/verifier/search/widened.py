"""Regions that grow upstream, to what the other side's region reads."""

from __future__ import annotations

from dataclasses import replace

from parity.verifier.search.exchange import computing, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

MOST = 24
"""Most operations by which a region grows."""


def widened(gap: Gap, index: Index) -> Gap | None:
    """Return a place at which one side computes nothing, with the operations of that side that lead from
    what the other's region reads to its value.

    The other side has that value, too, and computes another in its place. None where both sides compute
    something, or none of them does.
    """
    a, b = gap.a, gap.b
    of_a, of_b = computing(a), computing(b)
    if bool(of_a) == bool(of_b):
        return None
    operations = b.program.operations
    if of_a:
        read = {i for i in outside(a) if a.program.operations[i].size > 1}
        ends = (op.index for op in operations if read & {each.index for each in index.meets(op)})
        grown = _grown(b, set(ends))
        return grown and replace(gap, b=grown)
    read = {
        each.index for i in outside(b) if operations[i].size > 1 for each in index.meets(operations[i])
    }
    grown = _grown(a, read)
    return grown and replace(gap, a=grown)


def _grown(region: Region, ends: set[int]) -> Region | None:
    """Return a region with all operations between some values and its end; None if it reads others."""
    program = region.program
    inside: set[int] = set()
    stack = [region.end]
    while stack:
        op = program.operations[stack.pop()]
        if op.index in inside or op.index in ends or (op.size == 1 and op.mark is not None):
            continue
        if op.run is None or not op.inputs or len(inside) == MOST:
            return None
        inside.add(op.index)
        stack += op.inputs
    return replace(region, operations=sorted(inside)) if inside else None
