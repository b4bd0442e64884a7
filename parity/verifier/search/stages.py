"""Programs that take several training steps: their parameters after each step, compared in turn.

A wrong update is wrong in every step and for every parameter, and no single value mends what the next
step computes from all of them. So the parameters after the first step are roots of their own: up to
there a program is one step, and each parameter an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.names import ELEMENTWISE, LAYOUT
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import conventional
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.pairing import Pairs
from parity.verifier.search.trials import read_by

SHARED = 0.5
"""Share of common readers above which a value counts as a parameter's successor."""
_PASSED = ELEMENTWISE | LAYOUT | {"addcmul", "addcdiv", "lerp"}

_Chain = list[int]
"""A parameter, followed by its value after each step but the last, which nothing reads."""


def stages(a: Program, b: Program, index: Index) -> Iterator[Pairs]:
    """Yield the paired parameters after the first step, after the second, and so on; nothing for
    programs that take one step.

    Args:
        a: a program.
        b: the other.
        index: A's values.
    """
    of_a, of_b = ({chain[0]: chain for chain in chains(each)} for each in (a, b))
    pairs = _pairs(a, b, index, of_a, of_b)
    for step in range(1, max((min(len(of_a[x]), len(of_b[y])) for x, y in pairs), default=1)):
        yield [
            (of_a[x][step], of_b[y][step]) for x, y in pairs if step < min(len(of_a[x]), len(of_b[y]))
        ]


def chains(program: Program) -> Iterator[_Chain]:
    """Yield each parameter that is updated, with its successors.

    A successor is computed from a parameter element by element, and is read as the parameter is: by
    the same lines, as the same operand.
    """
    readers = program.consumers()
    for op in program.operations:
        if op.kind not in ("parameter", "constant") or op.run is not None or not _may_step(op):
            continue
        chain = [op.index]
        while (after := _successor(program, readers, chain[-1])) is not None:
            chain.append(after)
        if len(chain) > 1:
            yield chain


def _may_step(op: Operation) -> bool:
    return op.mark is not None and op.size > 1 and op.dtype[:3] == "flo"


def _successor(program: Program, readers: Sequence[Sequence[int]], index: int) -> int | None:
    """Find the value that is computed element by element from another and read most like it."""
    size, own = program.operations[index].size, read_by(program, readers, index)
    behind, stack = set(), list(readers[index]) if own else []
    while stack:
        op = program.operations[stack.pop()]
        together = op.mark is None  # several at once, from which each is then taken
        if op.index not in behind and (together or (op.size == size and op.name in _PASSED)):
            behind.add(op.index)
            stack += readers[op.index]
    best, most = None, SHARED
    for each in sorted(i for i in behind if not program.operations[i].is_layout):
        theirs = read_by(program, readers, each)
        share = len(own & theirs) / len(own | theirs)
        if share > most and _may_step(program.operations[each]):
            best, most = each, share
    return best


def _pairs(
    a: Program, b: Program, index: Index, of_a: dict[int, _Chain], of_b: dict[int, _Chain]
) -> Pairs:
    """Pair the parameters that hold the same numbers; of several that do, such as zeros, those that are
    closest after a step."""
    ranked = []
    for y, chain_b in of_b.items():
        op = b.operations[y]
        partners = [x for x in of_a if a.operations[x].size == op.size] if is_weak(op) else (
            each.index for each in index.meets(op) if each.index in of_a
        )  # fmt: skip
        for x in partners:
            apart = _apart(a, of_a[x][1], b, chain_b[1])
            if is_weak(a.operations[x]) == is_weak(op) and apart is not None:
                ranked.append((apart, abs(x - y), x, y))
    if all(is_weak(b.operations[y]) for *_, y in ranked):
        return []  # zeros that a loop begins with, such as the state of a cell
    taken: set[tuple[str, int]] = set()
    pairs: Pairs = []
    for *_, x, y in sorted(ranked):
        if not {("A", x), ("B", y)} & taken:
            taken |= {("A", x), ("B", y)}
            pairs.append((x, y))
    return pairs


def _apart(a: Program, x: int, b: Program, y: int) -> float | None:
    """Return the distance of two values, in the plainest layout; None between shapes without one."""
    of_a, of_b = np.asarray(a.values([x])[x]), np.asarray(b.values([y])[y])
    changes = conventional(of_a.shape, of_b.shape)
    return min((distance(each.of(of_a), of_b) for each in changes), default=None)
