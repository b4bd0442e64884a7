"""Parameters that nothing in B reads, and that change nothing: a bias of zeros, a gain of ones.

The forward passes are the same then, and only the gradient of the parameter shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.causes.cause import Explanation
from parity.verifier.programs.backward import GRADIENT
from parity.verifier.programs.fingerprint import distance, same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.places import Search
from parity.verifier.search.region import ROWS, Gap, Region, computing_with

_NAMES = {
    "add": ("bias left out", "{} is never added"),
    "mul": ("gain left out", "nothing is multiplied by {}"),
}
"""Name and message of a parameter that A reads in an operation."""
_NEUTRAL = {"add": 0, "mul": 1}
"""Numbers that change nothing in an operation."""


def unused_parameters(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield each parameter whose gradient is zero in B because nothing reads it; B is then patched with
    A's gradient, and with that of a parameter that B reads in its place."""
    leaves_a, leaves_b = _leaves(search.a), _leaves(search.b)
    unequal = [(x, y) for x, y in search.unequal() if x in leaves_a and y in leaves_b]
    for x, y in unequal:
        a, b = leaves_a[x], leaves_b[y]
        given = _given(search, x, y)
        if given is None or np.any(search.b.values([y])[y]) or _is_read(search.b, b, y):
            continue
        uses = _uses(search.a, a)
        if not uses:
            continue
        twice = _twice(search, (x, y), unequal, leaves_b)
        if twice is not None:
            end = _uses(search.b, leaves_b[twice[1]])
            explanation = (
                "other value read",
                (
                    f"{_label(leaves_b[twice[1]])} is read in the place of {_label(b)}, too, which holds"
                    " the same numbers"
                ),
            )
            other = _given(search, *twice)
        elif np.all(search.b.cache[b.index] == _NEUTRAL[uses[0].name]):
            end = []
            name, done = _NAMES[uses[0].name]
            explanation, other = (name, done.format(_label(b)) + f"; A reads {_label(a)}"), None
        else:
            continue
        patched = {y: given} | ({twice[1]: other} if twice is not None and other is not None else {})
        fed = search.b.fed(patched, {})
        last = end[-1].index if end else _counterpart(search.b, uses[0], y)
        gap = Gap(
            Region(search.a, uses[0].index, [uses[0].index]),
            Region(search.b, last, [op.index for op in end]),
            given, np.asarray(search.b.values([y])[y]), repaired=fed,
        )  # fmt: skip
        search.b = fed
        yield gap, explanation


def _label(op: Operation) -> str:
    return op.label.removeprefix("params.")


def _is_read(program: Program, leaf: Operation, gradient: int) -> bool:
    """Return whether anything but its own gradient depends on a parameter."""
    return leaf.index in program.upstream([i for _, i in program.outputs if i != gradient])


def _uses(program: Program, leaf: Operation) -> list[Operation]:
    """Return the operations that add a parameter, or multiply by it, those of the forward pass first."""
    readers = program.consumers()
    uses = (program.operations[i] for i in sorted(computing_with(program, leaf.index, readers, ROWS)))
    return [op for op in uses if op.name in _NAMES]


def _given(search: Search, x: int, y: int) -> np.ndarray | None:
    """Return A's gradient in the layout of B's."""
    shape = search.b.operations[y].shape
    return next(iter(arrangements(np.asarray(search.a.values([x])[x]), shape)), None)


def _twice(
    search: Search,
    unused: tuple[int, int],
    unequal: list[tuple[int, int]],
    leaves: dict[int, Operation],
) -> tuple[int, int] | None:
    """Return the gradient of a parameter of the same numbers that is read in two places: it is the sum
    of A's two gradients."""
    value, numbers = _given(search, *unused), search.b.cache[leaves[unused[1]].index]
    for x, y in unequal:
        held = search.b.cache[leaves[y].index]
        other = _given(search, x, y)
        if y == unused[1] or not np.array_equal(held, numbers) or value is None or other is None:
            continue
        own = np.asarray(search.b.values([y])[y])
        if own.shape == value.shape and distance(value + other, own) <= FARTHEST.norm:
            return x, y
    return None


def _leaves(program: Program) -> dict[int, Operation]:
    """Return the leaf of which each output is the gradient."""
    by_label = {op.label: op for op in program.operations if op.run is None}
    leaves = {}
    for path, index in program.outputs:
        name = path.removeprefix(f"{GRADIENT}.")
        labels = (name, f"trees.{name}", name.removeprefix("inputs."))
        leaf = next((by_label[each] for each in labels if each in by_label), None)
        if leaf is not None and name != path:
            leaves[index] = leaf
    return leaves


def _counterpart(program: Program, value: Operation, otherwise: int) -> int:
    """Return the first operation that makes the value of one of the other program's."""
    assert value.mark is not None
    equal = (
        op.index
        for op in program.operations
        if op.mark is not None and op.run is not None and same(op.mark, value.mark, op.near)
    )
    return next(equal, otherwise)
