"""Norms on the other side of a residual: of the sum in one program (post-norm, as in the first
Transformer, https://arxiv.org/abs/1706.03762), of what is added to it in the other (pre-norm,
https://arxiv.org/abs/2002.04745).

No single value of A's shows it, for from the first norm on nothing meets. So all norms of B are moved to
the other side at once, each with its own gain and bias, and B must then meet A.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from parity.verifier.operations.causes.exchange import Cause
from parity.verifier.operations.layouts import arrangements
from parity.verifier.operations.places import Search
from parity.verifier.operations.program import Program, Ref
from parity.verifier.operations.region import Found, Region
from parity.verifier.operations.residual_norms import Norm, residual_norms

FEW = 3
"""Lines that may be wrong besides."""


def moved_norms(search: Search) -> Iterator[tuple[Found, tuple[int, ...], Cause]]:
    """Norms that B has behind the residuals and A before the branches, or the reverse; B is then left
    with its norms where A's are.

    Yields:
        The first of them, the ends of the others, and what to say.
    """
    if not search.unequal():
        return
    theirs, ways = _odd(list(residual_norms(search.a)), list(residual_norms(search.b)))
    tried = [(norms, _mended(search, norms)) for norms in ways]
    equal = [each for each in tried if not each[1].unequal()]
    for norms, after in equal or [each for each in tried if _explains_more(each[1], search)]:
        found = _found(search, theirs[0], norms[0], after.b)
        if found is not None:
            search.b, search.pairs = after.b, after.pairs
            yield found, tuple(each.end for each in norms[1:]), _said(norms[0])
            return


def _odd(of_a: list[Norm], of_b: list[Norm]) -> tuple[list[Norm], list[list[Norm]]]:
    """A's norms on that side of their residuals where most of them are, and those of B on the other.

    These without the last, too, if A has some there as well: a norm that follows the last block is
    behind a residual in any case.
    """
    behind = [norm for norm in of_a if norm.is_behind]
    before = [norm for norm in of_a if not norm.is_behind]
    most, few = sorted((behind, before), key=len, reverse=True)
    if len(most) == len(few):
        return [], []
    odd = [norm for norm in of_b if norm.is_behind is not most[0].is_behind]
    ways = [odd[: len(odd) - len(few)], odd] if few else [odd]
    return most, [norms for norms in ways if len(odd) > len(few) and norms]


def _mended(search: Search, norms: list[Norm]) -> Search:
    """The search with B's norms moved."""
    fed = _moved(search.b, norms)
    outputs = {old: new for (_, old), (_, new) in zip(search.b.outputs, fed.outputs, strict=True)}
    after = copy.copy(search)
    after.b, after.pairs = fed, [(x, outputs[y]) for x, y in search.pairs]
    return after


def _explains_more(after: Search, search: Search) -> bool:
    """Whether B with its norms moved parts from A at a few lines, and at more without."""
    moved, now = after.round(), search.round()
    if moved is None or now is None or len(moved.reach_b) >= len(now.reach_b):
        return False
    left = _lines(after)
    return len(left) <= FEW and len(left) < len(_lines(search))


def _lines(search: Search) -> set[object]:
    """The lines at which B parts from A; more than `FEW` where it does not meet A again."""
    found: set[object] = set()
    for place in copy.copy(search).places():
        found |= {place.b.program.operations[i].source for i in (*place.b.operations, place.b.end)}
        found |= set() if place.closed else set(range(FEW + 1))
    return found


def _said(norm: Norm) -> Cause:
    if norm.is_behind:
        return "post-norm for pre-norm", "B normalises the sum, A what the branch is given"
    return "pre-norm for post-norm", "B normalises what the branch is given, A the sum"


def _found(search: Search, theirs: Norm, first: Norm, fed: Program) -> Found | None:
    """The first norm of B, and the first of A; None if they are of other sizes."""
    a, b = (
        Region(program, norm.end if norm.is_behind else norm.sum, sorted({*norm.operations, norm.sum}))
        for program, norm in ((search.a, theirs), (search.b, first))
    )
    instead = np.asarray(search.b.values([b.end])[b.end])
    value = next(iter(arrangements(np.asarray(search.a.values([a.end])[a.end]), instead.shape)), None)
    return None if value is None else Found(a, b, value, instead, repaired=fed)


_Key = tuple[int, int]
"""An operation of B, and the norm it is a copy for, or -1 for the operation itself."""


def _moved(program: Program, norms: Sequence[Norm]) -> Program:
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
