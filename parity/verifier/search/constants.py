"""Constants that one program has in a smaller type than the other: rotary frequencies in float32."""

from __future__ import annotations

import numpy as np

from parity.verifier.programs.program import Operation, Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index


def constants_of(program: Program) -> set[int]:
    """Return the values that depend on neither an input nor a parameter."""
    found: set[int] = set()
    for op in program.operations:
        if op.kind == "constant" or (op.kind == "operation" and all(i in found for i in op.inputs)):
            found.add(op.index)
    return found


def rounded_constants(fine: Program, coarse: Program) -> dict[int, np.ndarray]:
    """Return constants of one program as the other has them: equal up to the rounding of a smaller type.

    The programs need not split them alike: one may hold rounded frequencies where the other computes
    the angles.
    """
    rounding: dict[int, float] = {}
    for i in sorted(constants_of(coarse)):
        op = coarse.operations[i]
        own = op.epsilon if op.kind == "constant" else 0.0
        rounding[i] = max([own, *(rounding[each] for each in op.inputs)])
    index = Index(coarse, {i for i, epsilon in rounding.items() if epsilon})
    if not index.operations:
        return {}
    found: dict[int, np.ndarray] = {}
    for i in sorted(constants_of(fine)):
        op = fine.operations[i]
        if op.mark is None or op.is_layout or op.dtype[:3] != "flo" or index.find(op.mark):
            continue
        own = fine.values([i])[i]
        for partner in index.find(op.mark, close=MARGIN * max(rounding.values())):
            way = _rounded(own, coarse, partner, MARGIN * rounding[partner.index])
            if way is not None:
                found[i] = way
                break
    return found


MARGIN = 4.0
"""Roundings by which two constants may differ: of the number, and of those it was computed from."""


def _rounded(own: np.ndarray, coarse: Program, op: Operation, limit: float) -> np.ndarray | None:
    """Return the other program's value in the shape of `own`, if all elements are within `limit`."""
    value = coarse.values([op.index])[op.index]
    for way in arrangements(value, own.shape):
        if np.all(np.abs(way - own) <= limit * np.abs(own)) and not np.array_equal(way, own):
            return way
    return None
