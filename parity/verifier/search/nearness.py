"""Measuring what rounding may do to each value of a program, which runs once more with nudged leaves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parity.measure.nearness import nearness
from parity.measure.nudge import nudged
from parity.verifier.programs.fingerprint import LEAST, MOST, SQUARE, distance, fingerprint, moved
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program

NUDGE = 1
"""Seed."""


Movement = tuple[float, float, float]
"""How far a nudge of all leaves moved a value: its means, its extremes, and all of it; relative."""


def measure(program: Program) -> None:
    """Set the limits of each operation of a program: how far its value may move by rounding."""
    for index, movement in movements(program).items():
        program.operations[index].near = nearness(*movement)


def movements(program: Program) -> dict[int, Movement]:
    """Run a program once more, each leaf nudged, and return how far each operation's value moves."""
    leaves = {op.index: program.cache[op.index] for op in program.operations if _is_nudged(program, op)}
    known: dict[int, Any] = {i: nudged(v, NUDGE, str(i)) for i, v in leaves.items()}
    behind = sorted(program.behind(known))
    last: dict[int, int] = {}
    for index in behind:
        last.update(dict.fromkeys(program.operations[index].inputs, index))
    known |= program.values(sorted(last.keys() - known.keys() - set(behind)))
    marks: dict[int, np.ndarray] = {i: fingerprint(value) for i, value in known.items() if i in leaves}
    moves: dict[int, Movement] = {}
    for index in behind:
        op = program.operations[index]
        value = known[index] = _again(program, op, known)
        if op.mark is not None:
            source = op.inputs[0] if op.is_layout and op.inputs else -1
            if source in marks:
                marks[index] = marks[source]
                if source in moves:
                    moves[index] = moves[source]
            else:
                marks[index] = fingerprint(value)
                moves[index] = _moved(op, marks[index], value, program.cache.get(index))
        for i in op.inputs:
            if last[i] == index:
                known.pop(i, None)
    return moves


def _again(program: Program, op: Operation, known: dict[int, Any]) -> Any:
    """Run an operation on nudged operands.

    Some hang on exact numbers, as the rows of which one is equal to 0.5: those read masks and indices as
    they were. One that the nudged floats do not fit either has the value that it had.
    """
    exact = [i for i in op.inputs if program.operations[i].dtype[:3] not in ("flo", "com")]
    for unmoved in [[], exact] if exact else [[]]:
        operands = known | program.values(unmoved) if unmoved else known
        try:
            value = program.apply(op, operands, {})
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            continue
        if not isinstance(value, np.ndarray) or value.shape == op.shape:
            return value
    return program.values([op.index])[op.index]


def _is_nudged(program: Program, op: Operation) -> bool:
    value = program.cache.get(op.index)
    return op.run is None and isinstance(value, np.ndarray) and value.dtype == np.float64


def _moved(op: Operation, mark: np.ndarray, value: Any, before: Any) -> Movement:
    """How far a value moved: its means, its extremes, and all of it.

    Single numbers move by more than means of many do: by the root of their number.
    """
    assert op.mark is not None
    means, extremes = moved(op.mark, mark)
    size = max(-op.mark[LEAST], op.mark[MOST])
    single = means * math.sqrt(op.size)
    if math.isfinite(single) and size:
        extremes = max(extremes, single * math.sqrt(op.mark[SQUARE]) / size)
    norm = _distance(before, np.asarray(value)) if isinstance(before, np.ndarray) else single
    return means, extremes, norm


def _distance(before: np.ndarray, value: np.ndarray) -> float:
    """Return the relative distance; `distance`, which is slow, only where there are infinities."""
    if before.dtype != np.float64:
        return distance(before, value)
    with np.errstate(invalid="ignore", over="ignore"):
        apart, flat = (value - before).ravel(order="K"), before.ravel(order="K")
        squares = float(np.dot(apart, apart)), float(np.dot(flat, flat))
    if not all(map(math.isfinite, squares)) or not squares[1]:
        return distance(before, value)
    return math.sqrt(squares[0] / squares[1])
