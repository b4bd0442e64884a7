"""Constants that one program has in a smaller type than the other: rotary frequencies in float32."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index


def constants_of(program: Program) -> set[int]:
    """Return the values that depend on neither an input nor a parameter."""
    constants: set[int] = set()
    for op in program.operations:
        if op.kind == "constant" or (op.kind == "operation" and all(i in constants for i in op.inputs)):
            constants.add(op.index)
    return constants


def rounded_constants(
    fine: Program, coarse: Program, but: Collection[np.ndarray] = ()
) -> dict[int, np.ndarray]:
    """Return constants of one program as the other has them: equal up to the rounding of a smaller type.

    The programs need not split them alike: one may hold rounded frequencies where the other computes
    the angles, or complex numbers where the other has cosines and sines.

    Args:
        but: numbers that the other program has been given of this one's: they stay as they are.
    """
    rounding: dict[int, float] = {}
    tables = {op.index for op in coarse.operations if op.kind == "parameter"}  # buffers of a module
    for i in sorted(constants_of(coarse) | tables):
        op = coarse.operations[i]
        own = op.epsilon if op.run is None else 0.0
        rounding[i] = max([own, *(rounding[each] for each in op.inputs)])
    index = Index(coarse, {i for i, epsilon in rounding.items() if epsilon})
    if not index.operations:
        return {}
    complex_ones = [op for op in index.operations if op.dtype[:3] == "com"]
    counterparts: dict[int, np.ndarray] = {}
    for i in sorted(constants_of(fine)):
        op = fine.operations[i]
        if op.mark is None or op.is_layout or op.dtype[:3] not in ("flo", "com"):
            continue
        own, size = fine.values([i])[i], _size(fine, i)
        if index.find(op.mark) or any(_has_numbers_of(each, own) for each in but):
            continue
        if not np.array_equal(size, np.abs(own)):  # the sine of pi may be any small number
            near = [each for each in index.operations if each.size == op.size]
        else:
            near = index.find(op.mark, close=MARGIN * max(rounding.values()))
        parts = [each for each in complex_ones if each.size == op.size and op.dtype[:3] == "flo"]
        for partner in (*near, *parts):
            value = coarse.values([partner.index])[partner.index]
            if not value.any():  # a bias of zeros is no sine of pi
                continue
            limit = MARGIN * rounding[partner.index] * size
            for each in (value.real, value.imag) if partner in parts else (value,):
                counterpart = _rounded(own, each, limit)
                if counterpart is not None and i not in counterparts:
                    counterparts[i] = counterpart
    return counterparts


def _size(program: Program, index: int) -> np.ndarray:
    """Return what a rounding of a constant is relative to: its size, or, of cosines and sines, that of
    the angle, which was rounded first, wherever they were moved to."""
    op = program.operations[index]
    if op.name in ("cos", "sin") and op.inputs:
        return 1 + np.abs(program.values([op.inputs[0]])[op.inputs[0]])
    if op.inputs and (op.is_layout or op.name in _JOINED):
        return program.apply(op, {i: _size(program, i) for i in op.inputs}, {})
    return np.abs(program.values([index])[index])


_JOINED = ("concat", "stack", "broadcast", "slice", "gather")
"""Operations that move elements, besides layouts."""
MARGIN = 4.0
"""Roundings by which two constants may differ: of the number, and of those it was computed from."""


def _has_numbers_of(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays hold the same numbers, in any order."""
    return one.size == other.size and np.array_equal(np.sort(one, None), np.sort(other, None))


def _rounded(own: np.ndarray, value: np.ndarray, limit: np.ndarray) -> np.ndarray | None:
    """Return the other program's value in the shape of `own`, if each element is within its limit."""
    for arrangement in arrangements(value, own.shape):
        if np.all(np.abs(arrangement - own) <= limit) and not np.array_equal(arrangement, own):
            return arrangement
    return None
