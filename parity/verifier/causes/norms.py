"""Norms at the wrong point of a residual connection: after the sum (post-norm, as in the first
Transformer, https://arxiv.org/abs/1706.03762), before the branch (pre-norm,
https://arxiv.org/abs/2002.04745), or after the branch (res-post-norm, as in Swin V2,
https://arxiv.org/abs/2111.09883).

No single value of A's shows this, since nothing meets from the first norm on. So all norms of B are
moved at once to where A's are, each with its own gain and bias, and B must then meet A.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.residual_norms import Kind, Norm, residual_norms
from parity.verifier.programs.operation import Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region

FEW = 3
"""Most lines that may be wrong besides the norms."""

_OF: dict[Kind, str] = {
    "pre": "what the branch is given",
    "post": "the sum",
    "res-post": "what the branch adds",
}


def moved_norms(search: Search) -> Iterator[tuple[Gap, tuple[int, ...], Explanation]]:
    """Find norms that B has at another point of its residual connections than A; the search goes on
    with B's norms moved to where A's are.

    Yields:
        The place of the first of them, the ends of the others, and what to say.
    """
    if not search.unequal():
        return
    theirs, choices = _odd(list(residual_norms(search.a)), list(residual_norms(search.b)))
    tried = [(norms, _mended(search, norms, theirs[0].kind)) for norms in choices]
    equal = [each for each in tried if not each[1].unequal()]
    for norms, after in equal or [each for each in tried if _explains_more(each[1], search)]:
        gap = _gap(search, theirs[0], norms[0], after.b)
        if gap is not None:
            search.b, search.outputs = after.b, after.outputs
            yield gap, tuple(each.end for each in norms[1:]), _explain(theirs[0].kind, norms[0].kind)
            return


def _odd(of_a: list[Norm], of_b: list[Norm]) -> tuple[list[Norm], list[list[Norm]]]:
    """Return A's norms of their commonest kind, and the sets of B's norms of another kind to move.

    If A has some of that other kind as well, the first set leaves out as many of B's last ones: a norm
    after the last block follows a residual connection in any case.
    """

    def of_kind(norms: list[Norm], kind: Kind) -> list[Norm]:
        return [norm for norm in norms if norm.kind == kind]

    kinds = sorted(_OF, key=lambda kind: -len(of_kind(of_a, kind)))
    most, second = (of_kind(of_a, kind) for kind in kinds[:2])
    if len(most) == len(second):
        return [], []
    kind = max(kinds[1:], key=lambda kind: len(of_kind(of_b, kind)) - len(of_kind(of_a, kind)))
    odd, few = of_kind(of_b, kind), len(of_kind(of_a, kind))
    choices = [odd[: len(odd) - few], odd] if few else [odd]
    return most, [norms for norms in choices if len(odd) > few and norms]


def _mended(search: Search, norms: list[Norm], kind: Kind) -> Search:
    """Return the search with B's norms moved."""
    fed = _moved(search.b, norms, kind)
    outputs = {old: new for (_, old), (_, new) in zip(search.b.outputs, fed.outputs, strict=True)}
    after = copy.copy(search)
    after.b, after.outputs = fed, search.outputs.of(outputs)
    return after


def _explains_more(after: Search, search: Search) -> bool:
    """Return whether B with its norms moved parts from A at few lines, and at fewer than before."""
    moved, now = after.round(), search.round()
    if moved is None or now is None or len(moved.unmet_b) >= len(now.unmet_b):
        return False
    left = _lines(after)
    return len(left) <= FEW and len(left) < len(_lines(search))


def _lines(search: Search) -> set[object]:
    """Return the lines at which B parts from A; more than `FEW` where it does not meet A again."""
    lines: set[object] = set()
    for place in copy.copy(search).places():
        lines |= {place.b.program.operations[i].source for i in (*place.b.operations, place.b.end)}
        lines |= set() if place.closed else set(range(FEW + 1))
    return lines


def _explain(a: Kind, b: Kind) -> Explanation:
    return f"{b}-norm for {a}-norm", f"B normalises {_OF[b]}, A {_OF[a]}"


def _gap(search: Search, theirs: Norm, first: Norm, fed: Program) -> Gap | None:
    """Return the place of the first norm of each program; None if the two have other sizes."""
    a, b = (
        Region(program, max(norm.end, norm.sum), sorted({*norm.operations, norm.sum}))
        for program, norm in ((search.a, theirs), (search.b, first))
    )
    own = np.asarray(search.b.values([b.end])[b.end])
    value = next(iter(arrangements(np.asarray(search.a.values([a.end])[a.end]), own.shape)), None)
    return None if value is None else Gap(a, b, value, own, repaired=fed)


_Key = tuple[int, int]
"""An operation of B, and the norm it is a copy for, or -1 for the operation itself."""


def _moved(program: Program, norms: Sequence[Norm], kind: Kind) -> Program:
    """Return the program with norms moved to another point of their residual connections."""
    replaced: dict[int, _Key] = {}
    """What every consumer reads in place of a value."""
    there: dict[tuple[int, int], _Key] = {}
    """What one consumer reads in place of a value, by consumer and value."""
    for n, norm in enumerate(norms):
        replaced[norm.end] = (norm.read, -1)
        if kind == "post":
            replaced[norm.sum] = (norm.end, n)
        elif kind == "pre":
            readers = program.consumers()[norm.stream]
            there |= {(each, norm.stream): (norm.end, n) for each in readers if each != norm.sum}
        else:
            there[norm.sum, norm.branch] = (norm.end, n)

    def final(key: _Key) -> _Key:
        while key[1] < 0 and key[0] in replaced:
            key = replaced[key[0]]
        return key

    def reads(key: _Key, i: int) -> _Key:
        index, n = key
        if n < 0:
            return there.get((index, i)) or final((i, -1))
        norm = norms[n]
        if i != norm.read:
            return (i, n) if i in norm.operations else (i, -1)
        if kind == "post":
            return norm.sum, -1
        return final((norm.stream if kind == "pre" else norm.branch, -1))

    other = Program(
        program.name, notes=program.notes, narrowed=program.narrowed, draws=program.draws,
        built=program.built,
    )  # fmt: skip
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
                    other.cache[new[key]] = program.cache[op.index]
        else:
            stack += missing
    other.outputs = [(name, new[final((i, -1))]) for name, i in program.outputs]
    other.refresh([op.index for op in other.operations if op.run is not None])
    return other


_BLOCKS: dict[Kind, str] = {
    "pre": "(x + jnp.tanh(norm(x, g, b) @ w)) @ v",
    "post": "norm(x + jnp.tanh(x @ w), g, b) @ v",
    "res-post": "(x + norm(jnp.tanh(x @ w), g, b)) @ v",
}
CAUSES = tuple(
    Cause(
        f"{b}-norm for {a}-norm",
        f"B normalises {_OF[b]}, A {_OF[a]}.",
        moved_norms,
        _BLOCKS[a],
        _BLOCKS[b],
    )
    for a, b in permutations(_BLOCKS, 2)
)
