"""Loops whose steps run in another order: over layers, or over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.measure.shown import first_few, first_three
from parity.verifier.causes.cause import Explanation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import is_weak
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region, computing_with

_ROWS = ("slice", "gather", "unbind")


def loops_in_another_order(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield a loop of B that takes its rows in another order than A does; B is then patched with A's.

    No single value of A's shows it: the first step alone, with its own parameters, is another of A's.
    All rows that a line reads are exchanged at once, which must leave less of B apart from A.
    """
    now = search.round()
    if now is None:
        return
    b = search.b
    orders = [(b.operations[rows[0]].source, rows, _order(search, rows)) for rows in _rows(b)]
    for line, order in dict.fromkeys((line, order) for line, _, order in orders if order):
        known = [rows for at, rows, own in orders if (at, own) == (line, order)]
        packed = [rows for at, rows, own in orders if at == line and own is None]
        together = [*known, *(rows for rows in packed if len(rows) == len(order))]
        values = b.values([i for rows in together for i in rows])
        given = {i: values[rows[j]] for rows in together for i, j in zip(rows, order, strict=True)}
        fed = b.fed(given, {})
        left = search.round(fed)
        if left is not None and (len(order) == 2 or len(left.unmet_b) >= len(now.unmet_b)):
            continue  # two rows may be the halves of a value
        first = next(i for i, j in zip(together[0], order, strict=True) if i != together[0][j])
        end = search.index.meets(b.operations[together[0][order[together[0].index(first)]]])[0].index
        gap = Gap(
            Region(search.a, end, []),
            Region(b, first, sorted(given)),
            given[first],
            values[first],
            repaired=fed,
        )
        search.b = fed
        yield gap, _explain(_names(b, together), len(order), order)
        return


def _explain(names: str, count: int, order: tuple[int, ...]) -> Explanation:
    if order == tuple(range(count))[::-1]:
        return "reversed", f"the {count} rows of {names} are taken backwards"
    text = first_few(np.argsort(order).tolist(), 8)
    return "permuted", f"the {count} rows of {names} are taken in A's order {text}"


def _rows(b: Program) -> Iterator[list[int]]:
    """Yield the operations of one line that read the rows of one value, in order."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for op in b.operations:
        if op.name in _ROWS and op.source is not None and len(op.inputs) == 1 and not is_weak(op):
            groups.setdefault((op.inputs[0], op.name, op.source, op.shape), []).append(op.index)
    yield from (rows for rows in groups.values() if len(rows) > 1)


def _order(search: Search, rows: list[int]) -> tuple[int, ...] | None:
    """Return the row that A takes at each step, as a number of B's; nothing if it takes them in B's
    order; None if A has no such rows, as where its parameters are packed."""
    first_uses, readers = [], search.a.consumers()
    for row in rows:
        partners = search.index.meets(search.b.operations[row])
        uses = [first_use(search.a, each.index, readers) for each in partners]
        if not uses:
            return None
        first_uses.append(min(uses))
    order = tuple(map(int, np.argsort(first_uses)))
    return () if len(set(first_uses)) < len(first_uses) or order == tuple(range(len(rows))) else order


def first_use(program: Program, index: int, readers: Sequence[Sequence[int]]) -> int:
    """Return the first operation that computes with a value, moved or not; behind all if none does."""
    return min(computing_with(program, index, readers), default=len(program))


def _names(b: Program, together: list[list[int]]) -> str:
    read = [b.operations[b.operations[rows[0]].inputs[0]] for rows in together]
    return first_three(list(dict.fromkeys(each.label or str(each.source) for each in read)))
