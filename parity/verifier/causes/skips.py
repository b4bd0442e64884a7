"""Operations that one side alone has: with these skipped, its value is the other's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.shown import first_few
from parity.verifier.causes.alone import name_operations
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.constants import constants_of
from parity.verifier.search.exchange import closer, find_differing, outside, rerun, upstream
from parity.verifier.search.layouts import arrangements, long_axes
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 24
"""Largest region, in operations, in which skips are tried."""
MOST_TRIALS = 150
WHOLE = 0.9
"""Share of the elements of some rows that must differ for whole rows to count as different, unless
the same elements of each row do."""


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find the fewest operations that, skipped on one side, give the value of the other."""
    for region, side, wanted in ((gap.a, "A", gap.value_b), (gap.b, "B", gap.value_a)):
        if wanted.size > 1 and (wanted == wanted.flat[0]).all():
            continue  # zeros come of much, as of what underflows
        for steps, start in skips(region):
            end = steps[-1]
            value = _skipped(region, end, start)
            if value is None:
                continue
            layouts = arrangements(value, wanted.shape) if region is gap.a else (value,)
            if any(closer(wanted, each, gap.error) for each in layouts):
                return name_operations(region, side, steps, start)
    return _partly(gap, gap.a, "A")


def not_updated(gap: Gap, index: Index) -> Explanation | None:
    """Recognise a parameter that B returns as it was given, where A returns what it computes from it."""
    program = gap.b.program
    outputs = program.values([each for _, each in program.outputs]).values()
    if not any(np.array_equal(each, gap.value_b) for each in outputs):
        return None
    for i, value in program.values([gap.b.end, *outside(gap.b)]).items():
        op = program.operations[i]
        before = {each.index for each in index.meets(op)} & set(upstream(gap.a, gap.a.end))
        if op.kind == "parameter" and before and np.array_equal(value, gap.value_b):
            return "not updated", f"{op.label} stays as it is given"
    return None


def too_many_of_a_part(gap: Gap, _: Index) -> Explanation | None:
    """Find operations that B runs on rows on which A does not."""
    return _partly(gap, gap.b, "B")


def _partly(gap: Gap, region: Region, side: str) -> Explanation | None:
    """Find operations that one side runs on rows on which the other does not."""
    a, b = gap.value_a, gap.value_b
    if a.shape != b.shape:
        return None
    apart = find_differing(a, b)
    if apart.all() or not apart.any():
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
    which = np.flatnonzero(rows).tolist()
    run = which == [*range(which[0], which[-1] + 1)] and len(which) > 2
    said = f"rows {which[0]} to {which[-1]}" if run else f"row {first_few(which, 4)}"
    where = f"for {said} of axis {axis} of {list(b.shape)}"
    own, other = (a, b) if side == "A" else (b, a)
    for steps, start in skips(region):
        value = _skipped(region, steps[-1], start)
        for arrangement in arrangements(value, b.shape) if value is not None else ():
            if closer(other, np.where(apart, arrangement, own), gap.error):
                name, message = name_operations(region, side, steps, start)
                return f"{name} of a part", f"{message} {where}"
    return None


def _shape(region: Region) -> tuple[int, ...]:
    return region.program.operations[region.end].shape


def skips(region: Region, largest: int = LARGEST) -> Iterator[tuple[list[int], int]]:
    """Yield the operations that lead from a value to a later one of its shape, and that first value: few
    operations first."""
    if not region.operations or len(region.operations) > largest:
        return
    program, inside = region.program, set(region.operations)
    single = [i for i in region.operations if program.operations[i].size == 1]
    numbers = constants_of(program).intersection(single) if single else set()
    ranked = []
    for end in region.operations:
        op = program.operations[end]
        if op.mark is None or op.is_layout or end in numbers:  # one number leads to any other
            continue
        for start in _before(region, end):
            other = program.operations[start]
            if other.mark is None or long_axes(other.shape) != long_axes(op.shape):
                continue
            steps = [i for i in _between(region, start, end) if i in inside]
            count = sum(not program.operations[i].is_layout for i in steps)
            if count:
                ranked.append((count, -end, steps, start))
    ranked.sort(key=lambda each: each[:2])
    for _, _, steps, start in ranked[:MOST_TRIALS]:
        yield steps, start


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


def _skipped(region: Region, end: int, start: int) -> np.ndarray | None:
    program = region.program
    value = np.asarray(program.values([start])[start])
    if end == region.end:
        return value.reshape(_shape(region)) if value.size == program.operations[end].size else None
    value = value.reshape(program.operations[end].shape)
    return rerun(region, given={end: value})


CAUSES = (
    Cause(
        "not updated",
        "B returns a parameter as it was given, A what it computes from it.",
        not_updated,
        "descent(lambda p: jnp.tanh(x @ p['w'] + p['b']).sum(), w=w, b=b)",
        "descent(lambda p: jnp.tanh(x @ p['w'] + lax.stop_gradient(p['b'])).sum(), w=w, b=b)",
    ),
    Cause(
        "left out",
        "B leaves out operations that A has.",
        judge,
        "(x @ w).cumsum(1) @ v",
        "x @ w @ v",
    ),
    Cause(
        "one step too many",
        "B has operations that A has not.",
        judge,
        "x @ w @ v",
        "(x @ w).cumsum(1) @ v",
    ),
    Cause(
        "norm left out",
        "B does not normalise a value.",
        judge,
        "nn.standardize(x @ w) @ v",
        "x @ w @ v",
    ),
    Cause(
        "one norm too many",
        "B normalises a value, A does not.",
        judge,
        "x @ w @ v",
        "nn.standardize(x @ w) @ v",
    ),
    Cause(
        "bias left out",
        "B does not add a parameter.",
        judge,
        "nn.relu(x @ w + b) @ v",
        "nn.relu(x @ w) @ v",
    ),
    Cause(
        "gain left out",
        "B does not multiply by a parameter.",
        judge,
        "nn.silu(norm(x, g, b)) @ w",
        "nn.silu(norm(x, 1, b)) @ w",
    ),
    Cause(
        "one parameter too many",
        "B adds or multiplies by a parameter, A does not.",
        judge,
        "nn.relu(x @ w) @ v",
        "nn.relu(x @ w + b) @ v",
    ),
    Cause(
        "residual left out",
        "B does not add the value in front of a branch.",
        judge,
        "jnp.tanh(x + nn.silu(x @ w)) @ v",
        "jnp.tanh(nn.silu(x @ w)) @ v",
    ),
    Cause(
        "one residual too many",
        "B adds the value in front of a branch, A does not.",
        judge,
        "jnp.tanh(nn.silu(x @ w)) @ v",
        "jnp.tanh(x + nn.silu(x @ w)) @ v",
    ),
    Cause(
        "term left out",
        "B does not add a value or a number.",
        judge,
        "jnp.tanh(x @ w + table) @ v",
        "jnp.tanh(x @ w) @ v",
    ),
    Cause(
        "one term too many",
        "B adds a value or a number, A does not.",
        judge,
        "jnp.tanh(x @ w) @ v",
        "jnp.tanh(x @ w + table) @ v",
    ),
    Cause(
        "factor left out",
        "B does not multiply by a value.",
        judge,
        "(x @ w) * nn.silu(x @ v) @ w",
        "nn.silu(x @ v) @ w",
    ),
    Cause(
        "one factor too many",
        "B multiplies by a value, A does not.",
        judge,
        "nn.silu(x @ v) @ w",
        "(x @ w) * nn.silu(x @ v) @ w",
    ),
    Cause(
        "scale left out",
        "B does not multiply or divide by a number.",
        judge,
        "nn.softmax(x @ x.mT / 6**0.5) @ x",
        "nn.softmax(x @ x.mT) @ x",
    ),
    Cause(
        "one scale too many",
        "B multiplies or divides by a number, A does not.",
        judge,
        "nn.softmax(x @ x.mT) @ x",
        "nn.softmax(x @ x.mT / 6**0.5) @ x",
    ),
)
