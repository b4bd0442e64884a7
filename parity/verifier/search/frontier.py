"""The frontier of what differs: values that have A's fingerprint, compared number by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program


def false_meetings(
    a: Program, b: Program, met: Mapping[int, Sequence[int]], roots: Set[int], passed: Set[int]
) -> set[int]:
    """Return values of B whose numbers are not A's, although their fingerprints agree.

    A fingerprint's means do not show a difference that is small beside the value and large beside what
    a norm leaves of it, as in a residual stream far from zero. So the frontier is compared number by
    number: the computed values that are read by operations from which a path leads to a root through
    no meeting value. Where one is not A's, the frontier moves on to what it was computed from, and what
    else was taken for the same value of A's is compared, too.

    Args:
        a: the reference.
        b: the other program.
        met: operations of B with those of A that have the same fingerprint.
        roots: outputs of B that differ.
        passed: further values of B at which a path ends.
    """
    lookalikes: set[int] = set()
    checked: set[int] = set()
    while True:
        between = b.upstream(roots, (met.keys() | passed) - lookalikes - roots)
        frontier = {i for each in between for i in b.operations[each].inputs} - between - checked
        before = len(lookalikes)
        while frontier:
            checked |= frontier
            others = _others(a, b, met, sorted(frontier))
            lookalikes |= others
            taken_for = {x for y in others for x in met[y]}
            frontier = {y for y in met if not taken_for.isdisjoint(met[y])} - checked
        if len(lookalikes) == before:
            return lookalikes


def _others(a: Program, b: Program, met: Mapping[int, Sequence[int]], values: Sequence[int]) -> set[int]:
    """Return those of some computed values of B whose numbers are not those of the values they meet."""
    new = [y for y in values if y in met and b.operations[y].run is not None]
    own, of_a = b.values(new), a.values(sorted({x for y in new for x in met[y]}))
    return {
        y
        for y in new
        if not any(_has(b.operations[y], own[y], a.operations[x], of_a[x]) for x in met[y])
    }


def _has(op: Operation, value: np.ndarray, other: Operation, numbers: np.ndarray) -> bool:
    """Whether a value has the numbers of another, in any order, up to rounding."""
    most = op.near.or_more(other.near).norm
    if value.size == numbers.size and any(
        distance(numbers.ravel(order), value.ravel(order)) <= most for order in ("K", "C")
    ):
        return True  # most are in one order, if only in memory, and sorting takes long
    mine, theirs = (np.sort(each, axis=None) for each in (value, numbers))
    if mine.size != theirs.size:  # one is the other, repeated
        small, large = sorted((mine, theirs), key=len)
        if large.size % small.size:
            return True
        mine, theirs = np.repeat(small, large.size // small.size), large
    return distance(theirs, mine) <= most
