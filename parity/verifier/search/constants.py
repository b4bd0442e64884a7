"""Constants that one program has in a smaller type than the other: rotary frequencies in float32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.verifier.programs.operation import Operation
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


def rounded_constants(fine: Program, coarse: Program) -> dict[int, np.ndarray]:
    """Return constants of one program as the other has them: equal up to the rounding of a smaller type.

    Those are sought that meet the data, and where the other has none like them, those that they are made
    of: the programs need not split them alike. One may hold rounded frequencies where the other
    computes the angles, or complex numbers where the other has cosines and sines.
    """
    rounding: dict[int, float] = {}
    constants = constants_of(coarse)
    tables = {op.index for op in coarse.operations if op.kind == "parameter"}  # buffers of a module
    for i in sorted(constants | tables):
        op = coarse.operations[i]
        own = op.epsilon if op.run is None else 0.0
        rounding[i] = max([own, *(rounding[each] for each in op.inputs)])
    rounded = Index(coarse, {i for i, epsilon in rounding.items() if epsilon})
    if not rounded.operations:
        return {}
    every = Index(coarse, constants | tables)
    counterparts: dict[int, np.ndarray] = {}
    stack, seen, own = _meeting_data(fine), set[int](), constants_of(fine)
    while stack:
        i = fine.maker(stack.pop()).index
        op = fine.operations[i]
        if i in seen or (op.mark is not None and every.find(op.mark)):
            continue
        seen.add(i)
        value = None
        if op.mark is not None and op.dtype[:3] in ("flo", "com"):
            value = _counterpart(fine, op, rounded, rounding)
        if value is None:
            stack += [each for each in op.inputs if each in own]
        else:
            counterparts[i] = value
    return counterparts


def _meeting_data(program: Program) -> list[int]:
    """Return the constants that are read together with what is no constant."""
    constants, readers = constants_of(program), program.consumers()
    return sorted(i for i in constants if any(each not in constants for each in readers[i]))


def _counterpart(
    fine: Program, op: Operation, rounded: Index, rounding: Mapping[int, float]
) -> np.ndarray | None:
    """Return the other program's value that is a constant but for its rounding."""
    coarse, own, size = rounded.program, fine.values([op.index])[op.index], _size(fine, op.index)
    if np.array_equal(size, np.abs(own)):
        assert op.mark is not None
        near = rounded.find(op.mark, close=MARGIN * max(rounding.values()))
    else:  # the sine of pi may be any small number
        near = [each for each in rounded.operations if each.size == op.size]
    is_real = op.dtype[:3] == "flo"
    parts = [each for each in rounded.operations if is_real and each.dtype[:3] == "com"]
    for partner in (*near, *parts):
        value = coarse.values([partner.index])[partner.index]
        if partner.size != op.size or not value.any():  # a bias of zeros is no sine of pi
            continue
        for each in (value.real, value.imag) if value.dtype.kind == "c" and is_real else (value,):
            counterpart = _rounded(own, each, MARGIN * rounding[partner.index] * size)
            if counterpart is not None:
                return counterpart
    return None


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


def _rounded(own: np.ndarray, value: np.ndarray, limit: np.ndarray) -> np.ndarray | None:
    """Return the other program's value in the shape of `own`, if each element is within its limit: in
    every layout and, of numbers in which rounding exchanges no two, in every order."""
    in_order = np.empty(own.shape, value.dtype)
    in_order.flat[np.argsort(own, axis=None)] = np.sort(value, axis=None)
    for arrangement in (*arrangements(value, own.shape), in_order):
        if np.all(np.abs(arrangement - own) <= limit) and not np.array_equal(arrangement, own):
            return arrangement
    return None
