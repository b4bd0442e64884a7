"""Parameters that nothing in B reads, and that change nothing: a bias of zeros, a gain of ones.

The forward passes are the same then, and only the gradient of the parameter shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.causes.cause import Explanation
from parity.verifier.programs.backward import GRADIENT
from parity.verifier.programs.fingerprint import same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region, computing_with

_NAMES = {
    "add": ("bias left out", "{} is never added"),
    "mul": ("gain left out", "nothing is multiplied by {}"),
}
"""Name and message of a parameter that A reads in an operation."""


def unused_parameters(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield each parameter whose gradient is zero in B because nothing reads it; B is then patched with
    A's gradient."""
    leaves_a, leaves_b = _leaves(search.a), _leaves(search.b)
    readers_a, readers_b = search.a.consumers(), search.b.consumers()
    for x, y in search.unequal():
        a, b = leaves_a.get(x), leaves_b.get(y)
        if a is None or b is None or readers_b[b.index] or np.any(search.b.values([y])[y]):
            continue
        uses = [search.a.operations[i] for i in computing_with(search.a, a.index, readers_a)]
        use = next((op for op in uses if op.name in _NAMES), None)
        if use is None:
            continue
        own, wanted = search.b.values([y])[y], np.asarray(search.a.values([x])[x])
        value = next(iter(arrangements(wanted, np.shape(own))), None)
        if value is None:
            continue
        fed = search.b.fed({y: value}, {})
        gap = Gap(
            Region(search.a, use.index, [use.index]),
            Region(search.b, _counterpart(search.b, use, y), []),
            value, np.asarray(own), repaired=fed,
        )  # fmt: skip
        search.b = fed
        name, done = _NAMES[use.name]
        own_label, label = (each.label.removeprefix("params.") for each in (b, a))
        yield gap, (name, done.format(own_label) + f"; A reads {label}")


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
