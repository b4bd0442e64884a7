"""Parameters of one shape that have changed places: the norms of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from parity.verifier.causes.cause import Explanation
from parity.verifier.programs.operation import Operation
from parity.verifier.search.exchange import is_a, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region, stack_of

MOST_LEAVES = 8
MOST_TRIALS = 60
_Pair = tuple[Operation, Operation]


def judge(gap: Gap, index: Index) -> Explanation | None:
    """Find pairs of B's parameters, or rows of stacks, that, exchanged, give A's value; A's region reads
    the same ones."""
    leaves, program = _leaves(gap.b), gap.b.program
    read = {each.index for each in _leaves(gap.a)}
    if not 2 <= len(leaves) <= MOST_LEAVES:
        return None
    if not all(read & {each.index for each in index.meets(leaf)} for leaf in leaves):
        return None
    for pairs in islice(_pairings(leaves), MOST_TRIALS):
        given = {}
        for one, other in pairs:
            values = program.values([one.index, other.index])
            given |= {one.index: values[other.index], other.index: values[one.index]}
        if is_a(gap, np.asarray(program.values([gap.b.end], given)[gap.b.end])):
            names = [[stack_of(program, each.index).label for each in pair] for pair in pairs]
            said = " and ".join(f"{one} with {other}" for one, other in names)
            return "operands exchanged", f"{said} {'has' if len(pairs) == 1 else 'have'} changed places"
    return None


def _leaves(region: Region) -> list[Operation]:
    """Return the parameters that a region reads, moved or not, and rows of stacks of them."""
    program = region.program
    return [program.operations[i] for i in outside(region) if stack_of(program, i).kind == "parameter"]


def _pairings(leaves: Sequence[Operation]) -> Iterator[list[_Pair]]:
    """Yield sets of pairs of the same shape: one pair, then two, each parameter in one at most."""
    pairs = [
        (one, other)
        for i, one in enumerate(leaves)
        for other in leaves[i + 1 :]
        if one.shape == other.shape
    ]
    yield from ([each] for each in pairs)
    for i, first in enumerate(pairs):
        for second in pairs[i + 1 :]:
            if not {each.index for each in first} & {each.index for each in second}:
                yield [first, second]
