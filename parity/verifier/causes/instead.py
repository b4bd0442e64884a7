"""Operations of B that may stand for those of A's that seem to be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from parity.verifier.programs.fingerprint import fingerprint, same
from parity.verifier.programs.operation import Operation
from parity.verifier.search.region import Found

MOST_BACK = 4
"""Most operations after which one may lead back to the value before them."""
_KEEPING = frozenset(["convert", "copy", "stop_gradient", "contiguous"])
_NEUTRAL = {"add": 0, "mul": 1, "sub": 0, "div": 1, "pow": 1}
"""Second operands, numbers in the program, with which an operation changes nothing; the first two take
them on either side."""


def may_be_another(found: Found, name: str) -> bool:
    """Return whether B has operations that lead back to the value before them, as a limit that is not
    reached does, right after A's value, or, unless one scale explains all, right before its own: they
    may stand for A's, and change nothing only here."""
    program, end = found.b.program, found.b.end
    after = found.repaired or program
    readers = after.consumers()
    behind = _near(found.b.readers or readers[end], lambda i: readers[i])
    if _has(found.value, (after.operations[i] for i in behind)):
        return True
    while (op := program.operations[end]).inputs and not computes(op):
        end = op.inputs[0]
    before = _near(op.inputs, lambda i: program.operations[i].inputs)
    makers = (program.operations[i] for i in before)
    return not name.startswith("scale") and _has(found.instead, makers, moved=True)


def _has(value: np.ndarray, operations: Iterable[Operation], *, moved: bool = False) -> bool:
    """Return whether one of some operations has a value of many numbers; `moved`: by moving it, too."""
    mark = fingerprint(value)
    return any(
        op.size == value.size > 1 and op.mark is not None and same(op.mark, mark, op.near)
        for op in operations
        if moved or computes(op)
    )


def computes(op: Operation) -> bool:
    """Return whether an operation may make other numbers: it moves or copies none, and neither adds 0 to
    them nor multiplies or divides them by 1, whatever they are."""
    numbers = op.operands if op.name in ("add", "mul") else op.operands[1:]
    nothing = _NEUTRAL.get(op.name)
    neutral = any(isinstance(each, int | float) and each == nothing for each in numbers)
    return not (neutral or op.is_layout or op.name in _KEEPING)


def _near(first: Iterable[int], then: Callable[[int], Iterable[int]]) -> set[int]:
    """Return some operations and those that follow within a few steps."""
    found = edge = set(first)
    for _ in range(MOST_BACK):
        edge = {i for each in edge for i in then(each)}
        found = found | edge
    return found
