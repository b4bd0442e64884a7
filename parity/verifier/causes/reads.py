"""Operations of B that read another value than A's do."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.measure.shown import first_few
from parity.verifier.causes.alone import name_operations
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.factors import ratio_of
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.constants import constants_of
from parity.verifier.search.exchange import (
    closer_moved,
    computing,
    grain,
    is_a,
    layouts_of,
    outside,
    rerun,
    upstream,
    where,
)
from parity.verifier.search.meeting import Index, add_movers, is_weak
from parity.verifier.search.region import Gap, Region, before_of

LARGEST = 24
"""Largest region, in operations, whose operands are exchanged."""
MOST_TRIALS = 120
MOST_LAYOUTS = 3
"""Most layouts of a value that are tried as an operand."""
MOST_STEPS = 24
"""Most operations that are taken as run twice."""
LARGEST_TABLE = 1 << 22
"""Most elements of a value whose rows are compared."""


def other_value(gap: Gap, index: Index) -> Explanation | None:
    """Recognise that B computes nothing wrongly, but its next operation reads another of its values."""
    if computing(gap.b) or computing(gap.a) or not gap.b.readers:
        return None
    a, b = gap.a.program.operations[gap.a.end], gap.b.program.operations[gap.b.end]
    if {each.index for each in index.meets(a)} & {each.index for each in index.meets(b)}:
        return None
    if a.kind == "parameter" or b.kind == "parameter" or (b.size == 1 and is_weak(b)):
        return None
    held = _met_outside(gap.b, a, index)
    if held is None or held.kind == "constant" or (b.kind == "constant" and b.number is not None):
        return None
    if ratio_of(gap) is not None:
        return None  # it is scaled otherwise
    return twice(gap) or norm_left_out(gap, index, held) or ("other value read", _instead("", b, held))


def norm_left_out(gap: Gap, index: Index, held: Operation) -> Explanation | None:
    """Recognise a norm that A alone has in front of another: where gains are ones, B's only norm yields
    what A's first one does. Given A's value, it must yield A's second.

    Args:
        gap: where B reads another value than A.
        index: A's values.
        held: B's value that meets the one that A reads.
    """
    program, end, b = gap.a.program, gap.a.end, gap.b.program
    starts = sorted((op.index for op in index.meets(b.operations[gap.b.end])), reverse=True)
    named = next(filter(None, (_norm_of_a(program, each, end) for each in starts)), None)
    if named is None:
        return None
    fed = b.fed({gap.b.end: gap.value_a}, {}).operations[held.index]
    behind = program.behind(add_movers(program, {end}))
    second = {op.index for op in index.meets(fed) if op.index in behind and not op.is_layout}
    computed = (op for op in b.operations[held.index + 1 :] if op.run is not None)
    return None if second <= {each.index for op in computed for each in index.meets(op)} else named


def _norm_of_a(program: Program, start: int, end: int) -> Explanation | None:
    """Name the operations of A between two of its values, where they are those of a norm."""
    steps = before_of(program, end, program.behind({start}))
    if not steps:
        return None
    name, message = name_operations(Region(program, end, steps), "A", steps, start)
    return (name, message) if name == "norm left out" else None


def twice(gap: Gap) -> Explanation | None:
    """Recognise steps that B runs once more on what they yield: without them it has A's value."""
    program, readers = gap.b.program, gap.b.readers
    inside: list[int] = []
    for op in program.operations[gap.b.end + 1 :]:
        if len(inside) == MOST_STEPS:
            break
        if op.index not in readers and not set(inside).intersection(op.inputs):
            continue
        inside.append(op.index)
        steps = before_of(program, op.index, set(inside))
        value = rerun(Region(program, op.index, steps), given={gap.b.end: gap.value_a})
        if not op.is_layout and value is not None and closer_moved(gap.value_b, value, gap.error):
            name, message = name_operations(Region(program, op.index, steps), "B", steps, gap.b.end)
            return name.replace("residual", "term"), message  # which was added before as well
    return None


def returned(gap: Gap, index: Index) -> Explanation | None:
    """Recognise an output of B that A computes, too, behind or beside its own: hidden states a layer
    off."""
    program, end = gap.b.program, gap.b.end
    own = program.operations[end]
    if gap.b.readers or end not in (i for _, i in program.outputs) or is_weak(own):
        return None
    before = set(before_of(gap.a.program, gap.a.end, set(range(len(gap.a.program)))))
    met = index.meets(own)
    others = [op for op in met if op.index not in before and op.size == own.size]
    if not others or gap.a.end in (op.index for op in met):  # which A returns, in another order
        return None
    return "other value returned", f"A computes B's value at {where(others[0])}, and returns another"


def _instead(reader: str, own: Operation, wanted: Operation) -> str:
    """Say that a value is read in the place of another."""
    if where(own) == where(wanted):
        return f"{reader or 'it'} reads another value of {where(own)} than A does"
    of_b, of_a = where(own), where(wanted)
    return f"{reader} reads {of_b} where A reads {of_a}" if reader else (
        f"the value of {of_b} where A reads that of {of_a}"
    )  # fmt: skip


def _met_outside(region: Region, wanted: Operation, index: Index) -> Operation | None:
    """Return the value of B that is one of A's, is no copy of a patched one, and does not depend on a
    region."""
    program = region.program
    partners = {each.index for each in index.meets(wanted)}
    # what the end of an empty region leads to may be read, but not by what itself depends on it
    behind = program.behind(set(region.readers)) | set(region.readers)
    patched = {op.index for op in program.operations if op.kind == "operation" and op.run is None}
    given = add_movers(program, patched, ("convert",)) | (behind or program.behind({region.end}))
    for op in program.operations:
        if op.index in given:
            continue
        if op.mark is not None and partners & {each.index for each in index.meets(op)}:
            return op
    return None


def operand(gap: Gap, index: Index) -> Explanation | None:
    """Find an operand of B that, exchanged for a value that A's region reads, gives A's value."""
    region = gap.b
    if not region.operations or len(region.operations) > LARGEST:
        return None
    wanted = _values_read(gap, index)
    fixed = constants_of(region.program)  # one for another is another number, not another value
    tried = 0
    for op in computing(region):
        for position, each in enumerate(op.operands):
            if not isinstance(each, Ref):
                continue
            old = region.program.operations[each.index]
            for other, value in wanted:
                same = other.index == old.index or "constant" in (old.kind, other.kind)
                same = same or fixed.issuperset((old.index, other.index))
                if same or tried >= MOST_TRIALS:
                    continue
                for arrangement in islice(layouts_of(value, old.shape), MOST_LAYOUTS):
                    tried += 1
                    operands = (*op.operands[:position], arrangement, *op.operands[position + 1 :])
                    if is_a(gap, rerun(region, {op.index: replace(op, operands=operands)})):
                        return "other value read", _instead(op.name, old, other)
    return None


def operand_of_a(gap: Gap, index: Index) -> Explanation | None:
    """Find a value that A's region reads that, exchanged for one that B's value comes from, gives B's
    value, which A may have elsewhere: a norm that is given another value, but is not computed anew."""
    region = gap.a
    if computing(gap.b) or not region.operations or len(region.operations) > LARGEST:
        return None
    tried = 0
    before = [gap.b.program.operations[i] for i in sorted(upstream(gap.b, gap.b.end, LARGEST))]
    for i in outside(region):
        wanted = region.program.operations[i]
        if wanted.kind != "operation" or is_weak(wanted):
            continue
        for own in before:
            if own.size != wanted.size or own.mark is None or index.meets(own) == index.meets(wanted):
                continue
            value = gap.b.program.values([own.index])[own.index]
            for arrangement in islice(layouts_of(value, wanted.shape), MOST_LAYOUTS):
                tried += 1
                result = rerun(region, given={i: arrangement}) if tried < MOST_TRIALS else None
                if closer_moved(gap.value_b, result, gap.error):
                    return "other value read", _instead(
                        "", own, _met_outside(gap.b, wanted, index) or wanted
                    )
    return None


def _values_read(gap: Gap, index: Index) -> list[tuple[Operation, Any]]:
    """Return the values that A's region reads, each with B's operation that has it too."""
    values = []
    for i in outside(gap.a):
        op = gap.a.program.operations[i]
        if op.mark is None or op.dtype[:3] not in ("flo", "com"):
            continue
        held = _met_outside(gap.b, op, index)
        if held is not None:
            values.append((held, gap.a.program.values([i])[i]))
    return values[:8]


def row(gap: Gap, _: Index) -> Explanation | None:
    """Recognise another row of the same table."""
    for x in gap.b.program.values(_sources(gap.b)).values():
        if not isinstance(x, np.ndarray) or x.size > LARGEST_TABLE:
            continue
        for axis in range(x.ndim):
            rows = np.moveaxis(x, axis, 0)
            if [n for n in rows.shape[1:] if n > 1] != [n for n in gap.value_a.shape if n > 1]:
                continue
            rows = rows.reshape(-1, *gap.value_a.shape)
            of_a = [i for i, row in enumerate(rows) if is_a(gap, row)]
            of_b = [i for i, row in enumerate(rows) if distance(gap.value_b, row) <= grain(gap)]
            if len(of_a) == 1 and len(of_b) == 1:
                return (
                    "index",
                    f"row {of_b[0]} of axis {axis} of {list(x.shape)} where A has row {of_a[0]}",
                )
    return None


def rows(gap: Gap, _: Index) -> Explanation | None:
    """Recognise other rows of the same value, chosen for each sample, as of the last token."""
    a, b = gap.value_a.squeeze(), gap.value_b.squeeze()
    if a.ndim < 2 or a.shape != b.shape or a.dtype.kind != "f":
        return None
    for x in gap.b.program.values(outside(gap.b)).values():
        if not isinstance(x, np.ndarray) or x.ndim != a.ndim + 1 or x.size > LARGEST_TABLE:
            continue
        if len(x) != len(a) or x.shape[2:] != a.shape[1:]:
            continue
        of_a, of_b = _chosen(x, a), _chosen(x, b)
        if of_a is not None and of_b is not None and of_a != of_b:
            own, wanted = first_few(of_b, 6), first_few(of_a, 6)
            message = f"rows {own} of axis 1 of {list(x.shape)} where A has rows {wanted}"
            return "index", message
    return None


def _chosen(x: np.ndarray, value: np.ndarray) -> list[int] | None:
    """Return the one row of each sample that a value holds; None where it holds none, or several."""
    far = np.abs(x - value[:, None]).reshape(*x.shape[:2], -1).max(-1)
    near = far <= FARTHEST.extremes * np.abs(value).max()
    return near.argmax(1).tolist() if (near.sum(1) == 1).all() else None


def indices(gap: Gap, _: Index) -> Explanation | None:
    """Recognise whole numbers, by which rows are chosen, that differ."""
    a, b = gap.value_a, gap.value_b
    whole = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    if not whole or a.shape != b.shape or not a.size or a.squeeze().ndim > 1:
        return None
    apart = np.unique(b.astype(np.int64) - a.astype(np.int64))
    if len(apart) == 1 and a.size > 1:
        return "index", f"each is A's {'+' if apart[0] > 0 else '-'} {abs(apart[0])}"
    own, wanted = (first_few(each.ravel().tolist(), 6) for each in (b, a))
    return "index", f"{own} where A has {wanted}"


def _sources(region: Region) -> list[int]:
    """Return the values up to four operations before a region's end, up to any max or min: the least of
    some rows is one of them, but is not read by its index."""
    sources, index = [], region.end
    for _ in range(4):
        op = region.program.operations[index]
        if len(op.inputs) != 1 or op.name in ("max", "min"):
            break
        index = op.inputs[0]
        sources.append(index)
    return sources


CAUSES = (
    Cause(
        "index",
        "B reads another row of the same value.",
        row,
        "jnp.tanh(x @ w)[:, 0] @ v",
        "jnp.tanh(x @ w)[:, 1] @ v",
    ),
    Cause(
        "other value read",
        "An operation of B reads another of its values.",
        operand,
        "x @ w + jnp.tanh(x @ w) @ v",
        "x @ w + jnp.tanh(x) @ v",
    ),
    Cause(
        "other value returned",
        "B returns a value that A computes and does not return.",
        returned,
        "[h := x + jnp.tanh(x @ w), h + jnp.tanh(h @ v)][0]",
        "[h := x + jnp.tanh(x @ w), h + jnp.tanh(h @ v)][1]",
    ),
)
