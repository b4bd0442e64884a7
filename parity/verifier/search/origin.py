"""Tracing a wrong order of elements back to the operation that introduced it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import numpy as np

from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import closer, outside, rerun
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found, Region, distance

MOST_TRIALS = 64
MOST_PARTNERS = 16
MOST_BEFORE = 6
MOST_WAYS = 4
"""How many orders of a value are tried."""
LARGEST = 1 << 20
"""Largest number of elements of a value whose orders are compared."""

_Wrong = tuple[int, np.ndarray]
"""An operation of B, and its value rearranged into A's order."""


def origin(found: Found, index: Index) -> Found:
    """Return the place, moved back to the operations that gave B's numbers their order.

    Where more than an order is wrong, the place is returned unchanged.
    """
    program = found.b.program
    if found.value.size > LARGEST or not found.closed:
        return found
    if _same_numbers(found.value, found.instead):
        wrong: list[_Wrong] = [(found.b.end, np.asarray(found.value))]
    else:
        wrong = _misordered(found.b, found.value, index)
    made: dict[int, np.ndarray] = {}
    seen: set[int] = set()
    while wrong:
        end, value = wrong.pop(0)
        if end in seen:
            continue
        seen.add(end)
        if program.operations[end].run is None:
            return found  # a leaf in another order is a parameter's or an input's fault
        before = _misordered(Region(program, end, [end]), value, index)
        if not before:  # what lies between is not A's in any order
            before = _misordered(Region(program, end, sorted(_unmet(found.b, end, index))), value, index)
        if any(_is_elsewhere(program, i, way, index) for i, way in before):
            before = []  # it is in order, and another is read
        wrong += before
        if not before:
            made[end] = value
    if not made or (list(made) == [found.b.end] and found.b.operations):
        return found
    first = min(made)
    partners = index.meets(program.operations[first])
    return Found(
        Region(found.a.program, partners[0].index if partners else found.a.end, []),
        Region(program, first, sorted({i for end in made for i in _unmet(found.b, end, index)})),
        made[first],
        program.values([first])[first],
        repaired=found.repaired,
        twins=found.twins,
        traced=True,
    )


def _is_elsewhere(program: Program, read: int, way: np.ndarray, index: Index) -> bool:
    """Return whether B has whole numbers in A's order, such as the inverse of a shuffle, in another
    value than the one that is read."""
    if way.dtype.kind not in "iu":
        return False
    partners = {each.index for each in index.meets(program.operations[read])}
    alike = (
        op.index for op in program.operations
        if op.index != read and op.size == way.size and partners & {e.index for e in index.meets(op)}
    )  # fmt: skip
    return any(np.array_equal(program.values([i])[i].ravel(), way.ravel()) for i in alike)


def _unmet(region: Region, end: int, index: Index) -> list[int]:
    """Return an operation and those upstream of it whose values A has in no order."""
    found, stack = [], [end]
    while stack and len(found) < MOST_BEFORE:
        each = stack.pop()
        op = region.program.operations[each]
        if each not in found and op.run is not None and (each == end or not index.meets(op)):
            found.append(each)
            stack += op.inputs
    return found


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    if a.size != b.size or "c" in a.dtype.kind + b.dtype.kind:
        return False
    return distance(np.sort(a, axis=None), np.sort(b, axis=None)) <= 1e-9


def _misordered(region: Region, wanted: Any, index: Index) -> list[_Wrong]:
    """Find the fewest operands of a region that, put into A's order, give the wanted value."""
    program = region.program
    own = program.values([region.end])[region.end]
    error = distance(np.asarray(wanted), np.asarray(own))

    def fits(given: dict[int, np.ndarray]) -> bool:
        value = rerun(region, given=given)
        return value is not None and closer(wanted, value, error)

    moves = program.operations[region.end].is_layout
    for alike, held in ((True, False), (False, False), *(() if moves else ((False, True),))):
        ways = {
            i: found
            for i in outside(region)
            if i != region.end and (found := _orders(region, i, index, alike=alike, held=held))
        }
        for i, each in ways.items():
            for way in each:
                if fits({i: way}):
                    return [(i, way)]
        own = [None] if held else []
        for chosen in islice(product(*([*each, *own] for each in ways.values())), MOST_TRIALS):
            given = {i: way for i, way in zip(ways, chosen, strict=True) if way is not None}
            if len(given) > 1 and fits(given):
                return list(_fewest(given, fits).items())
    return []


def _fewest(
    given: dict[int, np.ndarray], fits: Callable[[dict[int, np.ndarray]], bool]
) -> dict[int, np.ndarray]:
    """Drop the values without which the rest still fits."""
    for i in list(given):
        rest = {j: way for j, way in given.items() if j != i}
        if rest and fits(rest):
            given = rest
    return given


def _orders(region: Region, read: int, index: Index, *, alike: bool, held: bool) -> list[np.ndarray]:
    """Return A's arrangements of a value that B holds in none of them.

    Args:
        region: the region that reads the value.
        read: the value.
        index: A's values.
        alike: use only values of A with the same lengths of axes; others can be split in several ways.
        held: return arrangements even if B's value is already one of them: a grid of whole numbers
            whose axes are exchanged before they are merged is A's, merged in another order.
    """
    program = region.program
    op = program.operations[read]
    own = program.values([read])[read]
    if not isinstance(own, np.ndarray) or own.size > LARGEST or own.size < 2:
        return []
    found: list[np.ndarray] = []
    while held and not index.meets(op) and op.name == "convert":
        op = program.operations[
            op.inputs[0]
        ]  # of whole numbers, which the other program need not convert
    partners = [each for each in index.meets(op) if not alike or _axes(each.shape) == _axes(op.shape)]
    for partner in partners[:MOST_PARTNERS]:
        value = index.program.values([partner.index])[partner.index]
        for way in arrangements(np.asarray(value), own.shape):
            if distance(way, own) <= 1e-9:
                if not held:
                    return []
                continue
            if len(found) < MOST_WAYS and not any(np.array_equal(way, each) for each in found):
                found.append(way)
    return found


def _axes(shape: tuple[int, ...]) -> list[int]:
    return sorted(n for n in shape if n > 1)
