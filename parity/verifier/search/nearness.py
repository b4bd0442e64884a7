"""Measuring what rounding may do to each value of a program, which runs once more with nudged leaves.

The same run shows whether operations, run again, are what was recorded: one that moves far while what it
reads hardly moved is a choice, loses digits, or is not run again as it ran.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parity.measure.nearness import LEAST, MOST, nearness
from parity.measure.nudge import nudged
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import LEAST as LOWEST
from parity.verifier.programs.fingerprint import MOST as HIGHEST
from parity.verifier.programs.fingerprint import SQUARE, distance, fingerprint, moved
from parity.verifier.programs.operation import DRAWN, Operation
from parity.verifier.programs.program import Program
from vit_config.errors import REPORT, OwnFaultError

NUDGE = 1
"""Seed."""


SAMPLED = 8
"""Most places along an axis at which moved elements are compared; to compare all takes 6 % more time."""

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
    far: set[int] = set()
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
        if _is_far(program, op, value, moves.get(index)):
            if far.isdisjoint(op.inputs):
                check_again(program, op)
            far.add(index)
        elif op.mark is None and not far.isdisjoint(op.inputs):
            far.add(index)
        for i in op.inputs:
            if last[i] == index:
                known.pop(i, None)
    return moves


def _is_far(program: Program, op: Operation, value: Any, movement: Movement | None) -> bool:
    """Return whether nudges moved a value farther than may ever count as rounding, or its elements to
    other places."""
    before = program.cache.get(op.index)
    if op.mark is None or not isinstance(value, np.ndarray):
        return False
    if op.is_layout and isinstance(before, np.ndarray):
        some = tuple(slice(0, None, n // SAMPLED + 1) for n in op.shape)
        return not distance(before[some], value[some]) <= MOST.norm
    return movement is not None and not movement[2] <= MOST.norm


def check_again(program: Program, op: Operation) -> None:
    """Run an operation again on what it read, and hold it to what was recorded.

    How far apart they may be is measured: it runs once more, on nudged operands.

    Raises:
        OwnFaultError: it is farther away than that.
    """
    if any(DRAWN in program.operations[i].extra for i in (op.index, *op.inputs)):
        return
    assert op.mark is not None
    needed = [i for i in op.inputs if program.operations[i].mark is None]  # several results at once
    read = [i for each in needed for i in program.operations[each].inputs] + op.inputs
    exact = program.values(dict.fromkeys(read))
    before = program.cache.get(op.index)

    def run(values: dict[int, Any]) -> Any:
        values = dict(values)
        for each in needed:
            values[each] = program.apply(program.operations[each], values, {})
        return program.apply(op, values, {})

    def apart(one: Any, mark: np.ndarray, other: Any) -> float:
        if isinstance(one, np.ndarray):
            return distance(one, np.asarray(other))
        return moved(mark, fingerprint(other))[0]

    again = run(exact)
    if apart(before, op.mark, again) <= LEAST.norm:
        return
    nudges = {i: nudged(v, NUDGE, str(i)) if _is_floating(v) else v for i, v in exact.items()}
    limit = max(LEAST.norm, FACTOR * apart(again, op.mark, run(nudges)))
    by = apart(before, op.mark, again)
    if not by <= limit:
        where = f" at {op.source}" if op.source else ""
        raise OwnFaultError(
            f"{program.name}: its {op.name}{where}, run again on what it read, is {by:.1e} away from"
            f" what was recorded, of which rounding explains {limit:.1e}. {REPORT}"
        )


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


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
    return op.run is None and _is_floating(program.cache.get(op.index))


def _moved(op: Operation, mark: np.ndarray, value: Any, before: Any) -> Movement:
    """How far a value moved: its means, its extremes, and all of it.

    Single numbers move by more than means of many do: by the root of their number.
    """
    assert op.mark is not None
    means, extremes = moved(op.mark, mark)
    size = max(-op.mark[LOWEST], op.mark[HIGHEST])
    single = means * math.sqrt(op.size)
    if math.isfinite(single) and size:
        extremes = max(extremes, single * math.sqrt(op.mark[SQUARE]) / size)
    norm = distance(before, np.asarray(value)) if isinstance(before, np.ndarray) else single
    return means, extremes, norm
