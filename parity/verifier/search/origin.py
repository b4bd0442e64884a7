"""Tracing a wrong order of elements back to the operation that introduced it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import closer, outside, rerun
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

MOST_TRIALS = 64
MOST_PARTNERS = 16
MOST_BEFORE = 6
MOST_ORDERS = 4
"""How many orders of a value are tried."""
LARGEST = 1 << 20
"""Largest number of elements of a value whose orders are compared."""

_Wrong = tuple[int, np.ndarray]
"""An operation of B, and its value rearranged into A's order."""


def origin(gap: Gap, index: Index) -> Gap:
    """Return the place, moved back to the operations that gave B's numbers their order.

    Where more than an order is wrong, the place is returned unchanged.
    """
    program = gap.b.program
    if gap.value_a.size > LARGEST or not gap.closed:
        return gap
    if _same_numbers(gap.value_a, gap.value_b):
        wrong: list[_Wrong] = [(gap.b.end, np.asarray(gap.value_a))]
    else:
        wrong = _misordered(gap.b, gap.value_a, index)
    origins: dict[int, np.ndarray] = {}
    seen: set[int] = set()
    while wrong:
        end, value = wrong.pop(0)
        if end in seen:
            continue
        seen.add(end)
        if program.operations[end].run is None:
            return gap  # a leaf in another order is a parameter's or an input's fault
        before = _misordered(Region(program, end, [end]), value, index)
        if not before:  # what lies between is not A's in any order
            before = _misordered(Region(program, end, sorted(_unmet(gap.b, end, index))), value, index)
        if any(_is_elsewhere(program, i, arrangement, index) for i, arrangement in before):
            before = []  # it is in order, and another is read
        wrong += before
        if not before:
            origins[end] = value
    if not origins or (list(origins) == [gap.b.end] and gap.b.operations):
        return gap
    first = min(origins)
    partners = index.meets(program.operations[first])
    return Gap(
        Region(gap.a.program, partners[0].index if partners else gap.a.end, []),
        Region(program, first, sorted({i for end in origins for i in _unmet(gap.b, end, index)})),
        origins[first],
        program.values([first])[first],
        repaired=gap.repaired,
        siblings=gap.siblings,
        traced=True,
    )


def _is_elsewhere(program: Program, read: int, numbers: np.ndarray, index: Index) -> bool:
    """Return whether B has whole numbers in A's order, such as the inverse of a shuffle, in another
    value than the one that is read."""
    if numbers.dtype.kind not in "iu":
        return False
    partners = {each.index for each in index.meets(program.operations[read])}
    others = (
        op.index for op in program.operations
        if op.index != read and op.size == numbers.size and partners & {e.index for e in index.meets(op)}
    )  # fmt: skip
    return any(np.array_equal(program.values([i])[i].ravel(), numbers.ravel()) for i in others)


def _unmet(region: Region, end: int, index: Index) -> list[int]:
    """Return an operation and those upstream of it whose values A has in no order."""
    unmet, stack = [], [end]
    while stack and len(unmet) < MOST_BEFORE:
        each = stack.pop()
        op = region.program.operations[each]
        if each not in unmet and op.run is not None and (each == end or not index.meets(op)):
            unmet.append(each)
            stack += op.inputs
    return unmet


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    if a.size != b.size or "c" in a.dtype.kind + b.dtype.kind:
        return False
    return distance(np.sort(a, axis=None), np.sort(b, axis=None)) <= FARTHEST.norm


def _misordered(region: Region, wanted: Any, index: Index) -> list[_Wrong]:
    """Find the fewest operands of a region that, put into A's order, give the wanted value."""
    program = region.program
    own = program.values([region.end])[region.end]
    error = distance(np.asarray(wanted), np.asarray(own))

    def fits(given: dict[int, np.ndarray]) -> bool:
        value = rerun(region, given=given)
        return value is not None and closer(wanted, value, error)

    moves = program.operations[region.end].is_layout
    for same_axes, own_too in ((True, False), (False, False), *(() if moves else ((False, True),))):
        reads = (i for i in outside(region) if i != region.end)
        orders = {i: _orders(region, i, index, same_axes=same_axes, own_too=own_too) for i in reads}
        orders = {i: arrangements for i, arrangements in orders.items() if arrangements}
        for i, each in orders.items():
            for arrangement in each:
                if fits({i: arrangement}):
                    return [(i, arrangement)]
        unchanged = [None] if own_too else []
        for chosen in islice(product(*([*each, *unchanged] for each in orders.values())), MOST_TRIALS):
            given = {i: order for i, order in zip(orders, chosen, strict=True) if order is not None}
            if len(given) > 1 and fits(given):
                return list(_fewest(given, fits).items())
    return []


def _fewest(
    given: dict[int, np.ndarray], fits: Callable[[dict[int, np.ndarray]], bool]
) -> dict[int, np.ndarray]:
    """Drop the values without which the rest still fits."""
    for i in list(given):
        rest = {j: arrangement for j, arrangement in given.items() if j != i}
        if rest and fits(rest):
            given = rest
    return given


def _orders(
    region: Region, read: int, index: Index, *, same_axes: bool, own_too: bool
) -> list[np.ndarray]:
    """Return A's arrangements of a value that B holds in none of them.

    Args:
        region: the region that reads the value.
        read: the value.
        index: A's values.
        same_axes: use only values of A with the same lengths of axes; others can be split in several
            ways.
        own_too: return arrangements even if B's value is already one of them: a grid of whole numbers
            whose axes are exchanged before they are merged is A's, merged in another order.
    """
    program = region.program
    op = program.operations[read]
    own = program.values([read])[read]
    if not isinstance(own, np.ndarray) or own.size > LARGEST or own.size < 2:
        return []
    orders: list[np.ndarray] = []
    while own_too and not index.meets(op) and op.name == "convert":
        op = program.operations[op.inputs[0]]  # whole numbers, which A need not convert
    partners = [a for a in index.meets(op) if not same_axes or _axes(a.shape) == _axes(op.shape)]
    for partner in partners[:MOST_PARTNERS]:
        value = index.program.values([partner.index])[partner.index]
        for arrangement in arrangements(np.asarray(value), own.shape):
            if distance(arrangement, own) <= FARTHEST.norm:
                if not own_too:
                    return []
                continue
            known = any(np.array_equal(arrangement, each) for each in orders)
            if len(orders) < MOST_ORDERS and not known:
                orders.append(arrangement)
    return orders


def _axes(shape: tuple[int, ...]) -> list[int]:
    return sorted(n for n in shape if n > 1)
