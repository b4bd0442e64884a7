"""Norms on the other side of a residual: of the sum in one program (post-norm, as in the first
Transformer, https://arxiv.org/abs/1706.03762), of what is added to it in the other (pre-norm,
https://arxiv.org/abs/2002.04745).

No single value of A's shows it, for from the first norm on nothing meets. So all norms of B are moved to
the other side at once, each with its own gain and bias, and B must then meet A.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.verifier.operations.causes.exchange import Cause
from parity.verifier.operations.layouts import arrangements
from parity.verifier.operations.meeting import reach
from parity.verifier.operations.names import ELEMENTWISE, LAYOUT
from parity.verifier.operations.places import Search
from parity.verifier.operations.program import Program, Ref
from parity.verifier.operations.region import Found, Region

MOST = 16
"""Operations between a value and the root of its mean square."""

FEW = 3
"""Lines that may be wrong besides."""

_STATISTICS = ELEMENTWISE | LAYOUT | {"mean", "sum", "var"}


@dataclass(frozen=True)
class _Norm:
    """A norm of a stream to which a branch is added: x + f(norm(x)), or norm(x + f(x))."""

    read: int
    end: int
    operations: tuple[int, ...]
    """Those between the two, the end included."""
    stream: int
    sum: int

    @property
    def is_behind(self) -> bool:
        """Whether it is of the sum."""
        return self.read == self.sum


def moved_norms(search: Search) -> Iterator[tuple[Found, tuple[int, ...], Cause]]:
    """Norms that B has behind the residuals and A before the branches, or the reverse; B is then left
    with its norms where A's are.

    Yields:
        The first of them, the ends of the others, and what to say.
    """
    if not search.unequal():
        return
    theirs, norms = _most(search.a), _most(search.b)
    if not theirs or not norms or theirs[0].is_behind is norms[0].is_behind:
        return
    fed = _moved(search.b, norms)
    outputs = {old: new for (_, old), (_, new) in zip(search.b.outputs, fed.outputs, strict=True)}
    after = copy.copy(search)
    after.b, after.pairs = fed, [(x, outputs[y]) for x, y in search.pairs]
    found = _found(search, theirs[0], norms[0], fed)
    if found is not None and _is_mended(copy.copy(after)):
        search.b, search.pairs = after.b, after.pairs
        yield found, tuple(each.end for each in norms[1:]), _said(norms[0])


def _most(program: Program) -> list[_Norm]:
    """The norms on that side of their residuals where most are: the norm that follows the last block is
    behind a residual in any case."""
    norms = list(_residual_norms(program))
    behind = [norm for norm in norms if norm.is_behind]
    before = [norm for norm in norms if not norm.is_behind]
    return max(behind, before, key=len) if len(behind) != len(before) else []


def _is_mended(after: Search) -> bool:
    """Whether B with its norms moved meets A, but for a few other mistakes."""
    lines = set()
    for place in after.places() if after.unequal() else ():
        if not place.closed:
            return False
        lines |= {place.b.program.operations[i].source for i in (*place.b.operations, place.b.end)}
    return len(lines) <= FEW


def _said(norm: _Norm) -> Cause:
    if norm.is_behind:
        return "post-norm for pre-norm", "B normalises the sum, A what the branch is given"
    return "pre-norm for post-norm", "B normalises what the branch is given, A the sum"


def _found(search: Search, theirs: _Norm, first: _Norm, fed: Program) -> Found | None:
    """The first norm of B, and the first of A; None if they are of other sizes."""
    a, b = (
        Region(program, norm.end if norm.is_behind else norm.sum, sorted({*norm.operations, norm.sum}))
        for program, norm in ((search.a, theirs), (search.b, first))
    )
    instead = np.asarray(search.b.values([b.end])[b.end])
    value = next(iter(arrangements(np.asarray(search.a.values([a.end])[a.end]), instead.shape)), None)
    return None if value is None else Found(a, b, value, instead, repaired=fed)


def _residual_norms(program: Program) -> Iterator[_Norm]:
    """The norms of a residual stream."""
    fixed = _fixed(program)
    live = reach(program, (i for _, i in program.outputs), set())
    readers = [[each for each in found if each in live] for found in program.consumers()]
    for op in program.operations:
        if op.name in ("sqrt", "rsqrt") and op.index not in fixed:
            found = _norm(program, readers, fixed, op.index)
            if found is not None:
                yield from _residuals(program, readers, fixed, *found)


def _fixed(program: Program) -> set[int]:
    """The operations that depend on no input."""
    inputs = [op.index for op in program.operations if op.kind == "input"]
    return set(range(len(program))) - program.behind(inputs) - set(inputs)


def _norm(
    program: Program, readers: Sequence[Sequence[int]], fixed: set[int], root: int
) -> tuple[int, int, tuple[int, ...]] | None:
    """What is normalised, the result, and the operations between, by the root of a mean square."""
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
    """The value whose mean square has a root: the first from which alone it is computed."""
    read, front = None, {root}
    for _ in range(MOST):
        index = max(front)
        if len(front) == 1 and program.operations[index].size > program.operations[root].size:
            read = index
        if not _is_statistic(program, fixed, index):
            break
        front = (front - {index}) | {i for i in program.operations[index].inputs if i not in fixed}
    return read


def _is_of(program: Program, fixed: set[int], read: int, index: int) -> bool:
    """Whether a value is another one, or computed from it alone: centred."""
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
    """Whether an operation may be a part of means and deviations; gains, biases, positions are not."""
    op = program.operations[index]
    known = [i for i in op.inputs if i in fixed]
    plain = op.name in _STATISTICS and all(program.operations[i].size == 1 for i in known)
    return plain and len(known) < len(op.inputs)


def _made(program: Program, index: int) -> int:
    """What a value is, seen through what only moves or converts it."""
    op = program.operations[index]
    while (op.is_layout or op.name == "convert") and op.inputs:
        op = program.operations[op.inputs[0]]
    return op.index


def _with(
    program: Program, readers: Sequence[Sequence[int]], fixed: set[int], end: int, name: str,
    shape: tuple[int, ...],
) -> int:  # fmt: skip
    """A result multiplied by its gain, or with its bias added; as it is if it has none."""
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
) -> Iterator[_Norm]:  # fmt: skip
    """A norm with the residual that it is behind or before, if it is."""

    def adds(index: int) -> bool:
        op = program.operations[index]
        return op.name == "add" and len(op.inputs) == 2 and not fixed.intersection(op.inputs)

    inside = set(operations)
    if adds(read) and inside.issuperset(readers[read]):
        for stream, branch in (pair := program.operations[read].inputs, pair[::-1]):
            if branch in program.behind({stream}):
                yield _Norm(read, end, operations, stream, read)
    sums = [i for i in readers[read] if i not in inside]
    if len(sums) == 1 and adds(sums[0]):
        (branch,) = {*program.operations[sums[0]].inputs} - {read} or {read}
        if branch in program.behind({end}):
            yield _Norm(read, end, operations, read, sums[0])


_Key = tuple[int, int]
"""An operation of B, and the norm it is a copy for, or -1 for the operation itself."""


def _moved(program: Program, norms: Sequence[_Norm]) -> Program:
    """The program with norms on the other side of their residuals."""
    instead: dict[int, _Key] = {}
    for n, norm in enumerate(norms):
        instead[norm.end] = (norm.read, -1)
        if not norm.is_behind:
            instead[norm.sum] = (norm.end, n)

    def final(key: _Key) -> _Key:
        while key[1] < 0 and key[0] in instead:
            key = instead[key[0]]
        return key

    branches = {(r, norm.stream): (norm.end, n) for n, norm in enumerate(norms) if norm.is_behind
                for r in program.consumers()[norm.stream] if r != norm.sum}  # fmt: skip

    def reads(key: _Key, i: int) -> _Key:
        index, n = key
        if n < 0:
            return branches.get((index, i)) or final((i, -1))
        norm = norms[n]
        if i == norm.read:
            return final((norm.stream, -1)) if norm.is_behind else (norm.sum, -1)
        return (i, n) if i in norm.operations else (i, -1)

    other = Program(program.name, notes=program.notes, narrowed=program.narrowed)
    new: dict[_Key, int] = {}
    stack: list[_Key] = [final((i, -1)) for _, i in reversed(program.outputs)]
    while stack:
        key = stack[-1]
        op = program.operations[key[0]]
        missing = [each for i in op.inputs if (each := reads(key, i)) not in new]
        if key in new or not missing:
            stack.pop()
            if key not in new:
                new[key] = len(other)
                operands = tuple(
                    Ref(new[reads(key, e.index)]) if isinstance(e, Ref) else e for e in op.operands
                )
                other.operations.append(replace(op, index=len(other), operands=operands))
                if op.run is None:
                    other.kept[new[key]] = program.kept[op.index]
        else:
            stack += missing
    other.outputs = [(name, new[final((i, -1))]) for name, i in program.outputs]
    other.refresh([op.index for op in other.operations if op.run is not None])
    return other
