"""Gradients of two programs brought into one layout, element by element, to be compared.

The layout is that of the parameters: where these are moved so that they are equal, or stacked, their
gradients are. Other gradients of several parameters, and those of parameters between which there is no
such move, are put in the order of the parameters' numbers, and where these are equal in that of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from parity.measure.nearness import LEAST, MOST, Nearness
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import distance, fingerprint
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import LayoutChange, layout_changes
from parity.verifier.search.meeting import size_of

Gradient = tuple[int, tuple[str, int]]
"""A leaf, with path and operation of its gradient."""


def aligned(
    a: Program, b: Program, mine: Sequence[Gradient], theirs: Sequence[Gradient]
) -> tuple[int, int]:
    """Return the operations of A and of B to compare; those that move gradients are added as outputs.

    Args:
        a: a program.
        b: the other.
        mine: gradients of A that belong together with those of B.
        theirs: gradients of B.
    """
    if len(mine) == len(theirs) == 1:
        (x, (path, of_a)), (y, (_, of_b)) = mine[0], theirs[0]
        change = _change(a.cache[x], b.cache[y], a.cache[of_a], b.cache[of_b])
        if change is not None:
            return _moved(a, of_a, change, path), of_b
    if len(theirs) == 1 and (rows := _rows(a, mine, b.cache[theirs[0][0]])):
        return _stacked(a, mine, rows), theirs[0][1][1]
    if len(mine) == 1 and (rows := _rows(b, theirs, a.cache[mine[0][0]])):
        return mine[0][1][1], _stacked(b, theirs, rows)
    return _in_order(a, mine), _in_order(b, theirs)


def _rows(
    program: Program, gradients: Sequence[Gradient], stack: np.ndarray
) -> list[tuple[int, LayoutChange]] | None:
    """Return for each row of a stack which of several parameters it is, and in which layout; None unless
    each row is exactly one, as no stack of ones is."""
    parts = [program.cache[leaf] for leaf, _ in gradients]
    rows = []
    for row in stack if stack.shape[:1] == (len(parts),) else []:
        found = [
            (k, each)
            for k, part in enumerate(parts)
            for each in layout_changes(part.shape, row.shape)
            if np.array_equal(each.of(part), row)
        ]
        if len(found) != 1:
            return None
        rows += found
    return rows if len({k for k, _ in rows}) == len(parts) else None


def _stacked(
    program: Program, gradients: Sequence[Gradient], rows: Sequence[tuple[int, LayoutChange]]
) -> int:
    """Append an output to a program: the gradients of several parameters as the rows of a stack."""

    def run(values: Sequence[Any]) -> np.ndarray:
        return np.stack([change.of(values[k]) for k, change in rows])

    return _append_joined(program, "stack", gradients, run)


def _change(
    mine: np.ndarray, theirs: np.ndarray, of_a: np.ndarray, of_b: np.ndarray
) -> LayoutChange | None:
    """Return the change of layout that makes two parameters equal; of several, as between arrays of
    zeros, the one that brings their gradients nearest, unless these are equal in another order alone."""
    changes = [
        each
        for each in layout_changes(mine.shape, theirs.shape)
        if np.array_equal(each.of(mine), theirs)
    ]
    if len(changes) < 2:
        return changes[0] if changes else None
    best = min(changes, key=lambda each: distance(each.of(of_a), of_b))
    apart, sorted_apart = (
        distance(x, y)
        for x, y in ((best.of(of_a), of_b), (np.sort(of_a, axis=None), np.sort(of_b, axis=None)))
    )
    return None if sorted_apart <= MOST.norm < apart else best


def _moved(program: Program, gradient: int, change: LayoutChange, path: str) -> int:
    """Append an output to a program: a gradient in another layout."""
    op = program.operations[gradient]
    if change.axes == tuple(range(len(op.shape))) and change.shape == op.shape:
        return gradient
    value = change.of(program.cache[gradient])
    return _append(
        program, "transpose", [gradient], lambda values: change.of(values[0]), value, path, op.grain
    )


def _in_order(program: Program, gradients: Sequence[Gradient]) -> int:
    """Append an output to a program: the gradients of several parameters as one list, sorted by the
    parameters' numbers, and where these are equal by their own."""
    numbers = _joined([program.cache[leaf] for leaf, _ in gradients])
    order = np.argsort(numbers)
    same = np.diff(numbers[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    number = np.cumsum(np.append(False, ~same))[tied]  # which of the numbers, in their order

    def run(values: Sequence[Any]) -> np.ndarray:
        joined = _joined(values)[order]
        equal = joined[tied]
        joined[tied] = equal[np.lexsort((equal, number))]
        return joined

    return _append_joined(program, "gather", gradients, run)


def _append_joined(
    program: Program,
    name: str,
    gradients: Sequence[Gradient],
    run: Callable[[Sequence[Any]], np.ndarray],
) -> int:
    parts = [index for _, (_, index) in gradients]
    sizes = [program.operations[each].size for each in parts]
    squares = (program.operations[i].grain ** 2 * n for i, n in zip(parts, sizes, strict=True))
    grain = float(np.sqrt(sum(squares) / sum(sizes)))
    path = ", ".join(path for _, (path, _) in gradients)
    return _append(program, name, parts, run, run([program.cache[i] for i in parts]), path, grain)


def _append(
    program: Program,
    name: str,
    parts: Sequence[int],
    run: Callable[[Sequence[Any]], Any],
    value: np.ndarray,
    path: str,
    grain: float,
) -> int:
    near = reduce(Nearness.or_more, (program.operations[each].near for each in parts))
    op = Operation(
        len(program), name, tuple(map(Ref, parts)), run,
        shape=value.shape, dtype=str(value.dtype), mark=fingerprint(value), grain=grain,
        is_layout=len(parts) == 1 and name == "transpose",
    )  # fmt: skip
    size = size_of(op)
    norm = FACTOR * grain / size if size else LEAST.norm
    op.near = near._replace(norm=min(max(norm, LEAST.norm), MOST.norm))
    program.operations.append(op)
    program.outputs.append((path, op.index))
    program.keep(op.index, value, always=True)
    return op.index


def _joined(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in values])
