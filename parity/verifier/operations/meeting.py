"""Which values of two programs meet: the same numbers, in any order, up to rounding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set

import numpy as np

from parity.verifier.operations.fingerprint import CLOSE, HUGE, LEAST, MOST, SQUARE, is_plain, same
from parity.verifier.operations.program import Operation, Program


class Index:
    """The values of a program, or some of them, found by their fingerprints."""

    def __init__(self, program: Program, among: Set[int] | None = None) -> None:
        self.program = program
        marked = [op for op in program.operations if op.mark is not None and op.size]
        marked = marked if among is None else [op for op in marked if op.index in among]
        marked.sort(key=lambda op: float(op.mark[SQUARE]))  # type: ignore[index]
        self.operations = marked
        self.squares = [float(op.mark[SQUARE]) for op in marked]  # type: ignore[index]
        self.plain = {op.index for op in marked if is_weak(op)}

    def find(self, mark: np.ndarray, *, close: float | None = None) -> list[Operation]:
        """The operations whose values have a fingerprint."""
        square = float(mark[SQUARE])
        slack = _slack(square, close or CLOSE)
        found = []
        for position in range(bisect_left(self.squares, square - slack), len(self.squares)):
            if self.squares[position] > square + slack:
                break
            op = self.operations[position]
            assert op.mark is not None
            if same(op.mark, mark) if close is None else same(op.mark, mark, close, 100 * close):
                found.append(op)
        return found

    def may_have(self, value: np.ndarray) -> bool:
        """Whether the mean of squares, which is quickly taken, allows that an operation has a value's
        numbers."""
        if value.dtype != np.float64 or not value.size:
            return True
        flat = value.ravel(order="K")
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.dot(flat, flat)) / flat.size
        if not square < HUGE:  # infinities are counted apart
            return True
        slack = _slack(square, CLOSE)
        position = bisect_left(self.squares, square - slack)
        return position < len(self.squares) and self.squares[position] <= square + slack

    def meets(self, op: Operation, mark: np.ndarray | None = None) -> list[Operation]:
        """The operations whose values an operation of the other program meets.

        Numbers such as many values have (zeros, masks, counts) meet only where they are made alike.
        """
        mark = op.mark if mark is None else mark
        if mark is None or not op.size:
            return []
        found = self.find(mark)
        if is_weak(op, mark):
            return [
                a for a in found if a.size == op.size and (a.name == op.name or a.kind != "operation")
            ]
        return [a for a in found if a.index not in self.plain]


def _slack(square: float, close: float) -> float:
    """How far apart the mean squares of equal numbers may be."""
    return max(4 * close * square, 1e-300)


def is_weak(op: Operation, mark: np.ndarray | None = None) -> bool:
    """Whether a value proves nothing by meeting another one: integers, booleans, simple constants."""
    mark = op.mark if mark is None else mark
    return mark is None or op.dtype[:3] in ("int", "uin", "boo") or is_plain(mark)


def noise(program: Program) -> set[int]:
    """Values that are nothing but the rounding of what they were computed from, such as a difference
    of equals."""
    found = set()
    for op in program.operations:
        if op.mark is None or not op.inputs or op.name not in ("sub", "add", "sum", "matmul", "mean"):
            continue
        size = max(abs(op.mark[LEAST]), abs(op.mark[MOST]))
        if not size:
            continue
        of_inputs = [program.operations[i].mark for i in op.inputs]
        scales = [float(np.sqrt(m[SQUARE])) for m in of_inputs if m is not None]
        scale = float(np.prod(scales)) if op.name == "matmul" else max(scales, default=0.0)
        if size <= 1e-14 * scale:
            found.add(op.index)
    return found


def meet(
    operations: Sequence[Operation], index: Index, marks: dict[int, np.ndarray] | None = None
) -> dict[int, list[int]]:
    """Of every operation that meets any, the operations of the other program."""
    marks = marks or {}
    found = {}
    for op in operations:
        partners = index.meets(op, marks.get(op.index))
        if partners:
            found[op.index] = [each.index for each in partners]
    return found


def reach(program: Program, roots: Iterable[int], met: set[int]) -> set[int]:
    """The operations from which a path leads to a root through no meeting value, roots included."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        index = stack.pop()
        if index in found or index in met or program.operations[index].run is None:
            continue
        found.add(index)
        stack += program.operations[index].inputs
    return found
