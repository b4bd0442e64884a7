"""Values of two programs that meet: they hold the same numbers, in any order, up to rounding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence, Set

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.measure.nearness import Nearness
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import HUGE, INFINITE, SQUARE, is_plain, mean_square, same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program


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
        self._met: dict[tuple[bytes, Nearness, tuple[int, str] | None], list[Operation]] = {}
        """What was found: a backward pass may be all zeros, a repaired program is mostly as it was."""

    def find(
        self, mark: np.ndarray, near: Nearness | None = None, *, close: float | None = None
    ) -> list[Operation]:
        """Return the operations whose values have a fingerprint.

        Args:
            mark: the fingerprint.
            near: what rounding may do to the value of that fingerprint, in addition to the operations'
                own limits.
            close: how far apart means may be instead, for numbers that are rounded to a smaller type.
        """
        given = Nearness(close, 100 * close, close) if close is not None else None
        square = float(mark[SQUARE])
        slack = _slack(square, close or FARTHEST.means)
        matches = []
        for position in range(bisect_left(self.squares, square - slack), len(self.squares)):
            if self.squares[position] > square + slack:
                break
            op = self.operations[position]
            assert op.mark is not None
            if same(op.mark, mark, given or (op.near if near is None else op.near.or_more(near))):
                matches.append(op)
        return matches

    def may_have(self, value: np.ndarray) -> bool:
        """Return whether some operation may have a value's numbers, by their mean of squares, which is
        quickly taken."""
        if value.dtype != np.float64 or not value.size:
            return True
        square = mean_square(value)
        if not square < HUGE:  # infinities are counted apart
            return True
        slack = _slack(square, FARTHEST.means)
        position = bisect_left(self.squares, square - slack)
        return position < len(self.squares) and self.squares[position] <= square + slack

    def meets(self, op: Operation, mark: np.ndarray | None = None) -> list[Operation]:
        """Return the operations whose values an operation of the other program meets.

        Numbers such as many values have (zeros, masks, counts) meet only where they are made alike.
        """
        mark = op.mark if mark is None else mark
        if mark is None or not op.size:
            return []
        made = (op.size, op.name) if is_weak(op, mark) else None
        key = mark.tobytes(), op.near, made
        if key not in self._met:
            self._met[key] = [each for each in self.find(mark, op.near) if self._may_meet(each, made)]
        return self._met[key]

    def _may_meet(self, each: Operation, made: tuple[int, str] | None) -> bool:
        """Return whether an operation of the same numbers is made alike, where that matters."""
        if made is None:
            return each.index not in self.plain
        return each.size == made[0] and (each.name == made[1] or each.kind != "operation")


def _slack(square: float, close: float) -> float:
    """Return how far apart the mean squares of equal numbers may be."""
    return max(4 * close * square, float(np.finfo(np.float64).tiny))


def is_weak(op: Operation, mark: np.ndarray | None = None) -> bool:
    """Whether a value proves nothing by meeting another one: integers, booleans, simple constants."""
    mark = op.mark if mark is None else mark
    return mark is None or op.dtype[:3] in ("int", "uin", "boo") or is_plain(mark)


def noise(program: Program) -> set[int]:
    """Return the values that are nothing but round-off, such as a difference of equals."""
    return {op.index for op in program.operations if is_noise(op)}


def is_noise(op: Operation) -> bool:
    """Return whether a value is zero up to rounding, and is not zero: a nudge of all leaves moves it by
    its own size."""
    return op.mark is not None and 0 < size_of(op) <= FACTOR * op.grain


def is_chaos(program: Program, index: int) -> bool:
    """Return whether a value is round-off that is not small: not zero in theory, beside what it is
    computed from, but another number each time."""
    op = program.operations[index]
    before = (program.operations[i] for i in program.upstream([index]) if i != index)
    terms = [size_of(each) for each in before if each.mark is not None]
    largest = max((each for each in terms if np.isfinite(each)), default=0.0)
    return is_noise(op) and size_of(op) > FARTHEST.norm * largest


def size_of(op: Operation) -> float:
    """Return the root mean square of a value's numbers."""
    assert op.mark is not None
    return float(np.sqrt(op.mark[SQUARE])) if not op.mark[INFINITE] else np.inf


def meet(operations: Sequence[Operation], index: Index) -> dict[int, list[int]]:
    """Return, for every operation that meets any, the operations of the other program that it meets."""
    partners = {op.index: index.meets(op) for op in operations}
    return {i: [each.index for each in several] for i, several in partners.items() if several}


def neutral(a: Program, b: Program, met: Mapping[int, Sequence[int]], unmet: Iterable[int]) -> set[int]:
    """Find operations of B that meet because they change nothing, such as a sum with a mask of zeros,
    where A's operation on the same value yields another: what B's add is what is wrong."""
    of_a = {(a.operations[each].name, i) for each in unmet for i in a.operations[each].inputs}
    operations = set()
    for index in met:
        op = b.operations[index]
        if op.name not in ("add", "sub", "mul", "div") or len(set(op.inputs)) != 2 or op.mark is None:
            continue
        marks = [b.operations[i].mark for i in op.inputs]
        equal = [m is not None and same(m, op.mark, op.near) for m in marks]
        if sum(equal) != 1:
            continue
        value, other = op.inputs if equal[0] else op.inputs[::-1]
        partners = met.get(value, ())
        if b.maker(other).inputs and any((op.name, i) in of_a for i in partners):
            operations.add(index)
    return operations


def repeated(a: Program, b: Program, met: Mapping[int, Sequence[int]]) -> set[int]:
    """Find operations of B that join equal parts and so meet one part alone: cosines beside cosines."""
    return {
        index
        for index, partners in met.items()
        if b.operations[index].name in ("concat", "stack")
        and all(a.operations[each].size != b.operations[index].size for each in partners)
    }


def add_movers(program: Program, values: Set[int], through: Container[str] = ()) -> set[int]:
    """Return values, and the operations that move them, or do what a name in `through` says."""
    carriers = set(values)
    for op in program.operations[min(carriers, default=len(program)) :]:
        if (op.is_layout or op.name in through) and any(i in carriers for i in op.inputs):
            carriers.add(op.index)
    return carriers
