"""The same operations skipped at several places of a region: in two branches, on two parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from parity.verifier.causes.alone import name_operations
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.skips import skips
from parity.verifier.programs.operation import Ref
from parity.verifier.search.exchange import closer_moved, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 48
"""Largest region, in operations, that is tried."""
MOST_TRIALS = 40
MOST_OF_A_GROUP = 5
"""Largest group of skips of which any two are tried."""
VAGUE = ("left out", "one step too many")
"""Names that say nothing of operations that are skipped at several places at once."""

_Skip = tuple[list[int], int]


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find operations of the same names that, skipped together on one side, give the other's value."""
    for region, side, wanted in ((gap.a, "A", gap.value_b), (gap.b, "B", gap.value_a)):
        groups: dict[tuple[str, ...], list[_Skip]] = {}
        for steps, start in skips(region, LARGEST):
            groups.setdefault(_names(region, steps), []).append((steps, start))
        for group in list(groups.values())[:MOST_TRIALS]:
            for some in _choices(_apart(group)):
                if closer_moved(wanted, _without(region, some), gap.error):
                    name, message = name_operations(region, side, *some[0])
                    return None if name in VAGUE else (name, f"{message}, {len(some)} times")
    return None


def _choices(group: list[_Skip]) -> Iterator[list[_Skip]]:
    """Yield all skips of a group, then any two of a few: Adam divides thrice, and corrects with two."""
    if len(group) > 1:
        yield group
    if 2 < len(group) <= MOST_OF_A_GROUP:
        yield from map(list, combinations(group, 2))


def _names(region: Region, steps: list[int]) -> tuple[str, ...]:
    ops = (region.program.operations[i] for i in steps)
    return tuple(op.name for op in ops if not op.is_layout)


def _apart(group: list[_Skip]) -> list[_Skip]:
    """Return the skips that share no operation, preferring those that end last."""
    taken: set[int] = set()
    disjoint = []
    for steps, start in sorted(group, key=lambda each: -each[0][-1]):
        if not taken.intersection(steps):
            taken.update(steps)
            disjoint.append((steps, start))
    return disjoint[::-1]


def _without(region: Region, group: list[_Skip]):
    changed = {}
    for steps, start in group:
        op = region.program.operations[steps[-1]]
        changed[op.index] = replace(
            op, operands=(Ref(start),), run=lambda operands, op=op: np.reshape(operands[0], op.shape)
        )
    return rerun(region, changed)
