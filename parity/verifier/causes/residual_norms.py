"""Norms around residual connections, found among a program's operations. Whatever the program calls
them, they divide values, centred or not, by the root of their mean square."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from parity.verifier.programs.names import ELEMENTWISE, LAYOUT
from parity.verifier.programs.program import Program

MOST = 16
"""Most operations between a value and the root of its mean square."""

_STATISTICS = ELEMENTWISE | LAYOUT | {"mean", "sum", "var"}


Kind = Literal["pre", "post", "res-post"]
"""What a norm normalises: the input of a branch, x + f(norm(x)); the sum, norm(x + f(x)); or the output
of a branch, x + norm(f(x))."""


@dataclass(frozen=True)
class Norm:
    """A norm at a residual connection, where a branch is added to a stream."""

    kind: Kind
    read: int
    end: int
    operations: tuple[int, ...]
    """Operations from `read` to `end`, `end` included."""
    stream: int
    branch: int
    """The value added to the stream; where the norm is of the branch, the value before the norm."""
    sum: int


def residual_norms(program: Program) -> Iterator[Norm]:
    """Yield the norms around a program's residual connections."""
    fixed = _fixed(program)
    live = program.upstream(i for _, i in program.outputs)
    readers = [[each for each in several if each in live] for several in program.consumers()]
    for op in program.operations:
        if op.name in ("sqrt", "rsqrt") and op.index not in fixed:
            norm = _norm(program, readers, fixed, op.index)
            if norm is not None:
                yield from _residuals(program, readers, fixed, *norm)


def _fixed(program: Program) -> set[int]:
    """Return the operations that depend on no input."""
    inputs = [op.index for op in program.operations if op.kind == "input"]
    return set(range(len(program))) - program.behind(inputs) - set(inputs)


def _norm(
    program: Program, readers: Sequence[Sequence[int]], fixed: set[int], root: int
) -> tuple[int, int, tuple[int, ...]] | None:
    """Find the norm that a root belongs to: the value normalised, the result, the operations between."""
    operations = program.operations
    read = _read(program, fixed, root)
    if read is None:
        return None
    behind, end = {root}, None
    for index in range(root + 1, min(root + 4 * MOST, len(program))):
        op = operations[index]
        if not behind.intersection(op.inputs) or op.name not in ELEMENTWISE | LAYOUT:
            continue
        others = [i for i in op.inputs if i not in behind and i not in fixed]
        if not all(_is_of(program, fixed, read, i) for i in others):
            continue
        behind.add(index)
        if others and op.name in ("mul", "div") and op.size == operations[read].size:
            end = index
            break
    if end is None:
        return None
    for name in ("mul", "add"):
        end = _with(program, readers, fixed, end, name, operations[read].shape)
    inside, stack = set(), [end]
    while stack:
        index = stack.pop()
        if index != read and index not in fixed and index not in inside:
            inside.add(index)
            stack += operations[index].inputs
    return (read, end, tuple(sorted(inside))) if min(inside) > read else None


def _read(program: Program, fixed: set[int], root: int) -> int | None:
    """Return the value whose mean square is under a root, or that value before it was centred."""
    read, front, parted = None, {root}, True
    for _ in range(MOST):
        index = max(front)
        last = None if read is None else program.operations[read]
        same = last is not None and last.is_layout and last.inputs == [index]  # others may read that one
        larger = program.operations[index].size > program.operations[root].size
        # a square is of something, and what is centred was there before
        parted |= len(front) > 1 or (last is not None and last.name in ("convert", "mul", "pow"))
        if len(front) == 1 and larger and parted and not same:
            read, parted = index, False
        if not _is_statistic(program, fixed, index):
            break
        front = (front - {index}) | {i for i in program.operations[index].inputs if i not in fixed}
    return read


def _is_of(program: Program, fixed: set[int], read: int, index: int) -> bool:
    """Return whether a value is another one, or computed from it alone, as a centred value is."""
    front = {index}
    for _ in range(MOST):
        if front == {read}:
            return True
        index = max(front)
        if index <= read or not _is_statistic(program, fixed, index):
            return False
        front = (front - {index}) | {i for i in program.operations[index].inputs if i not in fixed}
    return False


def _is_statistic(program: Program, fixed: set[int], index: int) -> bool:
    """Return whether an operation may be part of a mean or a deviation; no gain, bias or position is."""
    op = program.operations[index]
    known = [i for i in op.inputs if i in fixed]
    plain = op.name in _STATISTICS and all(program.operations[i].size == 1 for i in known)
    return plain and len(known) < len(op.inputs)


def _made(program: Program, index: int) -> int:
    """Return the operation that made a value, layout operations and conversions skipped."""
    op = program.operations[index]
    while (op.is_layout or op.name == "convert") and op.inputs:
        op = program.operations[op.inputs[0]]
    return op.index


def _with(
    program: Program, readers: Sequence[Sequence[int]], fixed: set[int], end: int, name: str,
    shape: tuple[int, ...],
) -> int:  # fmt: skip
    """Return a result times its gain (`mul`) or plus its bias (`add`); the result itself without one."""
    index = end
    while len(readers[index]) == 1:
        index = readers[index][0]
        op = program.operations[index]
        others = [i for i in op.inputs if i in fixed]
        if op.name == name and others and program.operations[_made(program, others[0])].size in shape:
            return index
        if not (op.is_layout or op.name == "convert"):
            break
    return end


def _residuals(
    program: Program, readers: Sequence[Sequence[int]], fixed: set[int],
    read: int, end: int, operations: tuple[int, ...],
) -> Iterator[Norm]:  # fmt: skip
    """Yield a norm for each residual connection that it stands at."""

    def adds(index: int) -> bool:
        op = program.operations[index]
        return op.name == "add" and len(op.inputs) == 2 and not fixed.intersection(op.inputs)

    def norm(kind: Kind, stream: int, branch: int, total: int) -> Iterator[Norm]:
        shapes = {program.operations[i].shape for i in (read, end, stream, total)}
        begin = end if kind == "pre" else stream
        if branch in program.behind({begin}) and len(shapes) == 1:
            yield Norm(kind, read, end, operations, stream, branch, total)

    def beside(total: int, operand: int) -> int:
        """Return the other operand of a sum."""
        return next(iter({*program.operations[total].inputs} - {operand}), operand)

    inside = set(operations)
    alone = all(inside.issuperset(readers[i]) for i in (read, *operations) if i != end)
    if adds(read) and alone:
        for branch in program.operations[read].inputs:
            yield from norm("post", beside(read, branch), branch, read)
    sums = [i for i in readers[read] if i not in inside]
    if len(sums) == 1 and adds(sums[0]):
        yield from norm("pre", read, beside(sums[0], read), sums[0])
    if alone and len(readers[end]) == 1 and adds(readers[end][0]):
        yield from norm("res-post", beside(readers[end][0], end), read, readers[end][0])
    op = program.operations[read]
    if op.is_layout and op.inputs:  # what it moves may be what is added up
        yield from _residuals(program, readers, fixed, op.inputs[0], end, (read, *operations))
