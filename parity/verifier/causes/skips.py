"""Operations that one side alone has: with these skipped, its value is the other's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.programs.program import Operation, Ref
from parity.verifier.search.exchange import Cause, closer, outside, rerun, upstream, where
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found, Region

LARGEST = 24
"""Largest region, in operations, in which skips are tried."""
MOST_TRIALS = 150
WHOLE = 0.9
"""Share of the elements of some rows that must differ for whole rows to count as different, unless
the same elements of each row do."""
SMALL = 0.01
"""Numbers below are added to keep a divisor from zero."""
_NO_NORM = frozenset(["matmul", "conv", "exp", "tanh", "erf", "erfc"])


def judge(found: Found, _: Index) -> Cause | None:
    """Find the fewest operations that, skipped on one side, give the value of the other."""
    for region, side, wanted in (
        (found.a, "A", found.instead),
        (found.b, "B", found.value),
    ):
        for steps, kept in skips(region):
            end = steps[-1]
            value = _skipped(region, end, kept)
            if value is None:
                continue
            ways = arrangements(value, wanted.shape) if region is found.a else (value,)
            if any(closer(wanted, way, found.error) for way in ways):
                return named(region, side, steps, kept)
    return _partly(found, found.a, "A")


def kept_as_it_was(found: Found, index: Index) -> Cause | None:
    """Recognise a parameter that B returns as it was given, where A returns what it computes from it."""
    program = found.b.program
    outputs = program.values([each for _, each in program.outputs]).values()
    if not any(np.array_equal(each, found.instead) for each in outputs):
        return None
    for i, value in program.values([found.b.end, *outside(found.b)]).items():
        op = program.operations[i]
        before = {each.index for each in index.meets(op)} & set(upstream(found.a, found.a.end))
        if op.kind == "parameter" and before and np.array_equal(value, found.instead):
            return "not updated", f"{op.label} stays as it is given"
    return None


def too_many_of_a_part(found: Found, _: Index) -> Cause | None:
    """Find operations that B runs on rows on which A does not."""
    return _partly(found, found.b, "B")


def _partly(found: Found, region: Region, side: str) -> Cause | None:
    """Find operations that one side runs on rows on which the other does not."""
    a, b = found.value, found.instead
    apart = ~np.isclose(a, b, rtol=1e-9, atol=1e-12)
    if apart.all() or not apart.any() or a.shape != b.shape:
        return None
    for axis in range(a.ndim):
        rows = apart.any(axis=tuple(i for i in range(a.ndim) if i != axis))
        if not rows.all():
            break
    else:
        return None
    each = np.moveaxis(apart, axis, 0)[rows]
    if each.mean() < WHOLE and not (each == each[0]).all():  # elements here and there, as of a mask
        return None
    which = ", ".join(map(str, np.flatnonzero(rows)[:4]))
    where = f"for row {which} of axis {axis} of {list(b.shape)}"
    own, other = (a, b) if side == "A" else (b, a)
    for steps, kept in skips(region):
        value = _skipped(region, steps[-1], kept)
        for way in arrangements(value, b.shape) if value is not None else ():
            if closer(other, np.where(apart, way, own), found.error):
                name, said = named(region, side, steps, kept)
                return f"{name} of a part", f"{said} {where}"
    return None


def _shape(region: Region) -> tuple[int, ...]:
    return region.program.operations[region.end].shape


def skips(region: Region, largest: int = LARGEST) -> Iterator[tuple[list[int], int]]:
    """Yield the operations that lead from a value to a later one of its shape, and that first value: few
    operations first."""
    if not region.operations or len(region.operations) > largest:
        return
    program, inside = region.program, set(region.operations)
    found = []
    for end in region.operations:
        op = program.operations[end]
        if op.mark is None or op.is_layout:
            continue
        for kept in _before(region, end):
            other = program.operations[kept]
            if other.mark is None or _long(other.shape) != _long(op.shape):
                continue
            steps = [i for i in _between(region, kept, end) if i in inside]
            count = sum(not program.operations[i].is_layout for i in steps)
            if count:
                found.append((count, -end, steps, kept))
    found.sort(key=lambda each: each[:2])
    for _, _, steps, kept in found[:MOST_TRIALS]:
        yield steps, kept


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _before(region: Region, end: int) -> list[int]:
    """Return the values upstream of an operation that are in the region, or read by it."""
    allowed = {*region.operations, *outside(region)}
    return [i for i in upstream(region, end) if i in allowed]


def _between(region: Region, first: int, last: int) -> list[int]:
    """Return the operations that lead from one value to another, the last included, in order."""
    program = region.program
    behind = {first}
    for index in region.operations:
        if index > first and any(i in behind for i in program.operations[index].inputs):
            behind.add(index)
    needed, stack = set(), [last]
    while stack:
        index = stack.pop()
        if index not in needed and index in region.operations and index != first:
            needed.add(index)
            stack += program.operations[index].inputs
    return sorted(i for i in needed if i in behind or i == last)


def _skipped(region: Region, end: int, kept: int) -> np.ndarray | None:
    program = region.program
    value = np.asarray(program.values([kept])[kept])
    if end == region.end:
        return value.reshape(_shape(region)) if value.size == program.operations[end].size else None
    value = value.reshape(program.operations[end].shape)
    return rerun(region, given={end: value})


def named(region: Region, side: str, steps: list[int], kept: int) -> Cause:
    """Name operations that one side alone has, and say where they are."""
    program = region.program
    ops = [program.operations[i] for i in steps if not program.operations[i].is_layout]
    names = {op.name for op in ops}
    lines = ", ".join(dict.fromkeys(str(op.source) for op in ops if op.source is not None))
    if len(ops) == 1 and ops[0].name in ("add", "sub", "rsub", "mul", "div"):
        return _one(region, side, ops[0], kept)
    norm = names & {"rsqrt", "sqrt"} and names & {"mean", "sum", "var"}
    if norm and not _dropped(region, steps, kept) & _NO_NORM:
        return ("norm left out" if side == "A" else "one norm too many"), f"only {side} has {lines}"
    return ("left out" if side == "A" else "one step too many"), f"only {side} has {lines}"


def _dropped(region: Region, steps: list[int], kept: int) -> set[str]:
    """Return the names of operations whose results no longer count where some are skipped."""
    program = region.program
    dropped = set(steps)
    if steps[-1] == region.end:
        dropped |= set(region.operations) - {kept, *upstream(region, kept)}
    return {program.operations[i].name for i in dropped}


def _one(region: Region, side: str, op: Operation, kept: int) -> Cause:
    """Name a sum or a product that one side alone has."""
    program, too_many = region.program, side == "B"
    sums = op.name in ("add", "sub", "rsub")
    number = [each for each in op.operands if not isinstance(each, Ref)]
    others = [program.operations[i] for i in op.inputs if not _leads(region, i, kept)]
    if not others and not number:  # x + x is twice x
        said = f"only {side} has {op.name} of a value and itself{_at(op)}"
        return ("one factor too many" if too_many else "factor left out"), said
    if number or (others and others[0].size == 1):
        what = "term" if sums else "scale"
        if sums and number and abs(float(np.ravel(number[0])[0])) < SMALL and _guards(region, op):
            return "epsilon", f"only {side} adds {float(np.ravel(number[0])[0]):.10g}{_at(op)}"
        text = f"{op.name} {float(np.ravel(number[0])[0]):.10g}" if number else op.name
        said = f"only {side} has {text}{_at(op)}"
        return (f"one {what} too many" if too_many else f"{what} left out"), said
    base = others[0]
    while base.is_layout and base.inputs:
        base = program.operations[base.inputs[0]]
    if base.kind == "parameter":
        name = "one parameter too many" if too_many else f"{'bias' if sums else 'gain'} left out"
        return name, f"only {side} has {op.name} {base.label}"
    what = "factor"
    if sums:
        own = base.index in {kept, *upstream(region, kept)} and _from_input(region, base)
        what = "residual" if own else "term"
    return (f"one {what} too many" if too_many else f"{what} left out"), (
        f"only {side} {'adds' if sums else 'multiplies by'} the value of {where(base)}"
    )


def _from_input(region: Region, op: Operation) -> bool:
    """Return whether a value depends on an input: a table of positions that each layer adds does not."""
    program = region.program
    return op.kind == "input" or any(
        program.operations[i].kind == "input" for i in upstream(region, op.index)
    )


def _guards(region: Region, op: Operation) -> bool:
    """Return whether a sum keeps a root or a divisor from zero."""
    program = region.program
    for reader in program.operations[op.index + 1 : op.index + 12]:
        if op.index in reader.inputs:
            return reader.name in ("sqrt", "rsqrt", "div", "reciprocal", "log", "pow", "maximum")
    return False


def _leads(region: Region, index: int, kept: int) -> bool:
    """Return whether an operand is the value that is kept, moved at most."""
    program = region.program
    while True:
        if index == kept:
            return True
        op = program.operations[index]
        if not op.is_layout or not op.inputs:
            return False
        index = op.inputs[0]


def _at(op: Operation) -> str:
    return f" at {op.source}" if op.source is not None else ""
