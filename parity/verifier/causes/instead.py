"""Operations of B that may stand for those of A's that seem to be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from parity.verifier.programs.fingerprint import fingerprint, same
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap

MOST_BACK = 4
"""Most operations after which one may lead back to the value before them."""
_KEEPING = frozenset(["convert", "copy", "detach", "stop_gradient", "contiguous"])
_NEUTRAL = {"add": 0, "mul": 1, "sub": 0, "div": 1, "pow": 1}
"""Second operands with which an operation changes nothing; the first two take them on either side."""
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
"""Operations whose values are one number, whatever they read."""


def may_be_another(gap: Gap, name: str, index: Index) -> bool:
    """Return whether B has operations that lead back to the value before them, as a limit that is not
    reached does, right after A's value, or, unless one scale explains all, right before its own: they
    may stand for A's, and change nothing only here. What A has as well, such as a bias of zeros, stands
    for nothing else."""
    program, end = gap.b.program, gap.b.end
    after = gap.repaired or program
    readers = after.consumers()
    behind = _near(gap.b.readers or readers[end], lambda i: readers[i])
    own = (i for i in behind if not _has_counterpart(after.operations[i], index))
    if _has(gap.value_a, own, after):
        return True
    while (op := program.operations[end]).inputs and (
        not computes(op, program) or _has_counterpart(op, index)
    ):
        end = op.inputs[0]
    before = _near(op.inputs, lambda i: program.operations[i].inputs)
    return not name.startswith("scale") and _has(gap.value_b, before, program, moved=True)


def _has_counterpart(op: Operation, index: Index) -> bool:
    """Return whether A makes the value of an operation by an operation of that name, too."""
    return any(each.name == op.name for each in index.meets(op))


def _has(value: np.ndarray, indices: Iterable[int], program: Program, *, moved: bool = False) -> bool:
    """Return whether one of some operations has a value of many numbers; `moved`: by moving it, too."""
    mark = fingerprint(value)
    return any(
        op.size == value.size > 1 and op.mark is not None and same(op.mark, mark, op.near)
        for op in map(program.operations.__getitem__, indices)
        if moved or computes(op, program)
    )


def computes(op: Operation, program: Program) -> bool:
    """Return whether an operation may make other numbers: it moves or copies none, and neither adds 0 to
    them nor multiplies or divides them by 1, whatever they are."""
    numbers = op.operands if op.name in ("add", "mul") else op.operands[1:]
    nothing = _NEUTRAL.get(op.name)
    neutral = nothing is not None and any(_number(each, program) == nothing for each in numbers)
    return not (neutral or op.is_layout or op.name in _KEEPING)


def _number(operand: Any, program: Program) -> Any:
    """Return the number that an operand is, or is filled with, whatever the program reads; None if it is
    not of one number."""
    while isinstance(operand, Ref):
        op = program.operations[operand.index]
        if not op.operands or not (op.is_layout or op.name == "full"):  # what is patched reads nothing
            return _FILLED.get(op.name)
        operand = op.operands[0]
    return operand if isinstance(operand, int | float) else None


def _near(first: Iterable[int], then: Callable[[int], Iterable[int]]) -> set[int]:
    """Return some operations and those that follow within a few steps."""
    near = edge = set(first)
    for _ in range(MOST_BACK):
        edge = {i for each in edge for i in then(each)}
        near = near | edge
    return near
