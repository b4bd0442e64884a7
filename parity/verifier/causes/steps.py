"""Two steps that B does in the other order: pooling before a norm, a limit before a scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import closer, closer_moved, computing, outside, rerun
from parity.verifier.search.layouts import long_axes
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region, before_of

LARGEST = 32
"""Largest region, in operations, whose steps are exchanged."""
MOST_BEHIND = 200
"""Most operations behind a place among which one of A's steps is looked for."""
_POOLS = ("mean", "sum", "max")


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find two steps of one side that, exchanged, give the other side's value."""
    sides = (gap.a, "A", "B", gap.value_b), (gap.b, "B", "A", gap.value_a)
    for region, own, other, wanted in sides:
        for first, last in _steps(region):
            if not closer_moved(wanted, _exchanged(first, last), gap.error):
                continue
            if len(computing(last)) <= len(computing(first)):
                return _explain(computing(last)[-1], other, own)
            return _explain(computing(first)[-1], own, other)
    return _pooled_later(gap)


def _explain(op: Operation, before: str, after: str) -> Explanation:
    at = f" at {op.source}" if op.source is not None else ""
    return "steps exchanged", f"{op.name}{at} comes first in {before} and last in {after}"


def _steps(region: Region) -> Iterator[tuple[Region, Region]]:
    """Yield the two parts of a region at each value through which alone its numbers go: the first part
    reads a value of that shape, and the second does not."""
    program, inside = region.program, set(region.operations)
    if len(inside) > LARGEST:
        return
    for middle in computing(region):
        before = before_of(program, middle.index, inside)
        rest = sorted(inside.difference(before))
        first, last = Region(program, middle.index, before), Region(program, region.end, rest)
        read = set(outside(last)) if rest else set()
        if middle.index in read and not read.intersection(before[:-1]) and computing(last):
            yield first, last


def _exchanged(first: Region, last: Region) -> np.ndarray | None:
    """Return the value of a region's last step and then its first; None where shapes do not allow it.

    What the last step reduces is repeated for the first one, which then makes equal rows of it.
    """
    program, shape = first.program, first.program.operations[first.end].shape
    for i in set(outside(first)) - set(outside(last)):
        op = program.operations[i]
        if op.shape != shape or op.kind == "parameter" or op.mark is None:
            continue
        start = np.asarray(program.values([i])[i])
        value = rerun(last, given={first.end: start})
        if value is None:
            return None
        value = np.asarray(value)
        if value.shape == shape:
            return rerun(first, given={i: value})
        for axis in range(len(shape)):
            rest = shape[:axis] + shape[axis + 1 :]
            if shape[axis] > 1 and value.size and long_axes(rest) == long_axes(value.shape):
                rows = np.broadcast_to(np.expand_dims(value.reshape(rest), axis), shape)
                made = rerun(first, given={i: rows.copy()})
                return None if made is None else np.take(made, 0, axis)
        return None
    return None


def _pooled_later(gap: Gap) -> Explanation | None:
    """Recognise rows that A reduces to one here, and B later."""
    a = [op for op in computing(gap.a) if op.name in _POOLS]
    if not a or computing(gap.b) or gap.value_a.shape != gap.value_b.shape:
        return None
    for axis, n in enumerate(gap.value_a.shape):
        rows, own = (np.moveaxis(each, axis, 0) for each in (gap.value_a, gap.value_b))
        if n < 2 or not all(np.array_equal(row, rows[0]) for row in rows):
            continue
        if any(closer(rows[0], pool(own, 0), gap.error) for pool in (np.mean, np.sum, np.max)):
            of_b = _pools(gap.b.program, gap.b.end, n)
            if of_b and len(of_b) > len(_pools(gap.a.program, gap.a.end, n)):
                return _explain(of_b[0], "A", "B")
    return None


def _pools(program: Program, start: int, n: int) -> list[Operation]:
    """Return operations that reduce `n` rows to one, behind a value."""
    behind = {start}
    pools = []
    for op in program.operations[start + 1 : start + 1 + MOST_BEHIND]:
        if behind.intersection(op.inputs):
            behind.add(op.index)
            of = max(program.operations[i].size for i in op.inputs)
            pools += [op] if op.name in _POOLS and of == n * op.size else []
    return pools


CAUSES = (
    Cause(
        "steps exchanged",
        "B does two steps of A's in the other order.",
        judge,
        "jnp.tanh(x @ w).mean(1) @ v",
        "jnp.tanh((x @ w).mean(1)) @ v",
    ),
)
