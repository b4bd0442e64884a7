"""Terms of the sums that both sides of a place are: those that are the same, and those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.report.formula import Letters, formula, number
from parity.verifier.report.operands import OWN_A, OWN_B
from parity.verifier.report.relation import DIFFERS, SAME, relation
from parity.verifier.report.sides import Term
from parity.verifier.search.layouts import LayoutChange, layout_changes
from parity.verifier.search.region import Gap, Region

LARGEST = 1 << 20
"""Most numbers of a sum whose terms are compared."""
MOST = 8
"""Most terms of a sum that are compared."""
_SIGNS = {"add": (1, 1), "sub": (1, -1), "rsub": (-1, 1)}
_PASSED = frozenset(["reshape", "squeeze", "unsqueeze", "broadcast", "convert", "copy", "contiguous"])
"""Operations that leave the order of the numbers, if they leave their count."""

_Valued = tuple[str, np.ndarray]
"""A term as a formula, and its value in the shape of the sum."""


def terms_of(gap: Gap, letters: Letters) -> tuple[Term, ...]:
    """Return the terms of both sides, with what they have in common.

    There are none unless both sides are sums of at least two terms, the same way round.
    """
    if not gap.closed or gap.value_a.size > LARGEST or gap.value_a.dtype.kind not in "fc":
        return ()
    of_a, of_b = _last(gap.a), _last(gap.b)
    if of_a is None or of_b is None:
        return ()
    named = len(letters.read)
    sums = [[*_terms(gap.a, of_a, letters)], [*_terms(gap.b, of_b, letters)]]
    del letters.read[named:]
    if (
        not all(2 <= len(terms) <= MOST for terms in sums)
        or not of_a.size == of_b.size == gap.value_a.size
    ):
        return ()
    total, wanted = np.sum([value for _, value in sums[0]], 0), gap.value_a.reshape(of_b.shape)
    plain = LayoutChange(of_a.shape, tuple(range(len(of_a.shape))), of_b.shape, of_b.shape)
    for change in (plain, *layout_changes(of_a.shape, of_b.shape)):
        if distance(change.of(total), wanted) <= FARTHEST.norm:
            return _matched([(text, change.of(value)) for text, value in sums[0]], sums[1])
    return ()


def _matched(of_a: list[_Valued], of_b: list[_Valued]) -> tuple[Term, ...]:
    """Pair terms with the same numbers first, then those whose formulas have most in common."""
    words = {(x, y): relation(a, b) for x, (_, a) in enumerate(of_a) for y, (_, b) in enumerate(of_b)}
    ranks = {
        (x, y): (each != SAME, each == DIFFERS, -_common(of_a[x][0], of_b[y][0]), y, x)
        for (x, y), each in words.items()
    }
    partners: dict[int, int] = {}
    for x, y in sorted(ranks, key=ranks.__getitem__):
        if y not in partners and x not in partners.values():
            partners[y] = x
    terms = [
        Term(of_a[partners[y]][0], text, words[partners[y], y])
        if y in partners
        else Term("", text, OWN_B)
        for y, (text, _) in enumerate(of_b)
    ]
    alone = [x for x in range(len(of_a)) if x not in partners.values()]
    return (*terms, *(Term(of_a[x][0], "", OWN_A) for x in alone))


def _common(one: str, other: str) -> int:
    return len({*one.split()} & {*other.split()})


def _last(region: Region) -> Operation | None:
    """Return the sum that a region ends in."""
    op = _passed(region, region.program.operations[region.end])
    return op if _is_sum(region, op) else None


def _passed(region: Region, op: Operation) -> Operation:
    """Return the operation of a region that made a value's numbers in their order."""
    operations = region.program.operations
    while op.index in region.operations and op.name in _PASSED and op.inputs:
        before = operations[op.inputs[0]]
        if before.size != op.size:
            break
        op = before
    return op


def _is_sum(region: Region, op: Operation) -> bool:
    return op.index in region.operations and op.name in _SIGNS and len(op.operands) == 2


def _terms(region: Region, op: Operation, letters: Letters, sign: int = 1) -> Iterator[_Valued]:
    """Yield the terms of a sum, with its sign."""
    program = region.program
    for each, own in zip(op.operands, _SIGNS[op.name], strict=True):
        if not isinstance(each, Ref):
            value: Any = sign * own * np.asarray(each)
            yield (
                number(float(value)) if np.ndim(value) == 0 else "[…]",
                np.broadcast_to(value, op.shape),
            )
            continue
        read = program.operations[each.index]
        made = _passed(region, read)
        if _is_sum(region, made):
            for text, value in _terms(region, made, letters, sign * own):
                yield text, np.broadcast_to(value.reshape(read.shape), op.shape)
            continue
        text = formula(program, read.index, region.operations, letters)
        value = sign * own * np.asarray(program.values([read.index])[read.index])
        yield text if sign * own > 0 else f"-({text})", np.broadcast_to(value, op.shape)
