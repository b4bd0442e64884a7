"""Loops whose steps run in the opposite order: over layers, or over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.causes.cause import Said
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import is_weak
from parity.verifier.search.places import Search
from parity.verifier.search.region import Found, Region

_ROWS = ("slice", "gather", "unbind")


def turned_loops(search: Search) -> Iterator[tuple[Found, Said]]:
    """Yield a loop of B that takes its rows in A's order backwards; B is then patched with A's order.

    No single value of A's shows it: the first step alone, with its own parameters, is one of A's last.
    All rows that a line reads are exchanged at once, which must leave less of B apart from A.
    """
    now = search.round()
    if now is None:
        return
    b = search.b
    turned = [rows for rows in _rows(b) if _is_turned(search, rows)]
    for line in dict.fromkeys(b.operations[rows[0]].source for rows in turned):
        together = [rows for rows in turned if b.operations[rows[0]].source == line]
        values = b.values([i for rows in together for i in rows])
        given = {i: values[j] for rows in together for i, j in zip(rows, rows[::-1], strict=True)}
        fed = b.fed(given, {})
        left = search.round(fed)
        if left is not None and len(left.reach_b) >= len(now.reach_b):
            continue
        first, last = together[0][0], together[0][-1]
        end = search.index.meets(b.operations[last])[0].index
        inside = sorted(given)
        said = f"the {len(together[0])} rows of {_names(b, together)} are taken backwards"
        found = Found(
            Region(search.a, end, []),
            Region(b, first, inside),
            values[last],
            values[first],
            repaired=fed,
        )
        search.b = fed
        yield found, ("reversed", said)
        return


def _rows(b: Program) -> Iterator[list[int]]:
    """Yield the operations of one line that read the rows of one value, in order."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for op in b.operations:
        if op.name in _ROWS and op.source is not None and len(op.inputs) == 1 and not is_weak(op):
            groups.setdefault((op.inputs[0], op.name, op.source, op.shape), []).append(op.index)
    yield from (rows for rows in groups.values() if len(rows) > 1)


def _is_turned(search: Search, rows: list[int]) -> bool:
    """Return whether A computes with the same rows in the opposite order."""
    found = []
    for row in rows:
        uses = [_first_use(search, each.index) for each in search.index.meets(search.b.operations[row])]
        if not uses:
            return False
        found.append(min(uses))
    return bool(np.all(np.diff(found) < 0))


def _first_use(search: Search, index: int) -> int:
    """Return the first operation of A that computes with a value, moved or not."""
    moved = {index}
    for op in search.a.operations[index + 1 :]:
        if any(i in moved for i in op.inputs):
            if not op.is_layout:
                return op.index
            moved.add(op.index)
    return len(search.a)


def _names(b: Program, together: list[list[int]]) -> str:
    read = [b.operations[b.operations[rows[0]].inputs[0]] for rows in together]
    names = list(dict.fromkeys(each.label or str(each.source) for each in read))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
