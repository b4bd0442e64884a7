"""Measuring what rounding may do to each value of a program, which runs once more with nudged leaves.

The same run shows whether operations, run again, are what was recorded: one that moves far while what it
reads hardly moved is a choice, loses digits, or is not run again as it ran.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.measure.nearness import nearness
from parity.measure.nudge import nudge_numbers
from parity.verifier.programs.fingerprint import (
    HUGE,
    LEAST,
    MOST,
    SQUARE,
    distance,
    fingerprint,
    fingerprint_distances,
    squares,
)
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.replay import check_again, is_floating

NUDGE = 1
"""Seed."""


class Movement(NamedTuple):
    """How far a nudge of all leaves moved a value."""

    means: float
    """Its means, relative to their sizes."""
    extremes: float
    """Its least and its largest number, relative to the larger."""
    norm: float
    """All of it, in the norm, relative to its own."""
    grain: float
    """All of it: the root mean square of what its numbers moved by."""

    @property
    def is_any(self) -> bool:
        """Whether anything moved."""
        return max(self) > 0


STEPS = frozenset(["floor", "ceil", "round", "sign", "trunc"])
"""Operations on floating point numbers whose results jump."""


KEPT_BYTES = 256 * 2**20
"""Most bytes of nudged leaves that are kept while a program runs once more."""
OFTEN = 4
"""Readers of a leaf, from which on its nudged numbers are kept."""
SAMPLED = 8
"""Most places along an axis at which moved elements are compared; to compare all takes 6 % more time."""


def measure(program: Program) -> None:
    """Set the limits of each operation of a program: how far its value may move by rounding.

    A value that moves because another element was chosen - an index, a comparison, a rounded number -
    did not move by round-off, and neither did what is computed from it and moves beyond rounding.
    """
    moves = movements(program)
    chosen: set[int] = set()
    for op in program.operations:
        movement = moves.get(op.index)
        follows = any(i in chosen for i in op.inputs)
        if movement is None:
            if follows and (op.mark is None or op.is_layout):
                chosen.add(op.index)
            continue
        op.near = nearness(movement.means, movement.extremes, movement.norm)
        jumps = op.dtype[:3] not in ("flo", "com") or op.name in STEPS
        if (jumps and movement.is_any) or (follows and movement.norm > FARTHEST.norm):
            chosen.add(op.index)
        else:
            op.grain = max(movement.grain, _grain_of_a_sum(program, op))


def _grain_of_a_sum(program: Program, op: Operation) -> float:
    """Return what rounding moves a sum by, given what it moves each number by: a nudge may move many of
    them alike, so that the sum, which is zero in theory, hardly moves."""
    source = program.operations[op.inputs[0]] if op.inputs else op
    if op.is_layout:
        return source.grain
    return source.grain * math.sqrt(source.size / op.size) if op.name == "sum" and op.size else 0.0


def movements(program: Program) -> dict[int, Movement]:
    """Run a program once more, each leaf nudged, and return how far each operation's value moves."""
    leaves = {op.index for op in program.operations if _is_nudged(program, op)}
    moved_leaves = _layouts_of(program, leaves)
    behind = sorted(program.behind(leaves))
    last: dict[int, int] = {}
    for index in behind:
        last.update(dict.fromkeys(program.operations[index].inputs, index))
    known: dict[int, Any] = program.values(sorted(last.keys() - leaves - set(behind)))
    nudged = _Nudged(program)
    marks: dict[int, np.ndarray] = {}
    moves: dict[int, Movement] = {}
    far: set[int] = set()
    for index in behind:
        op = program.operations[index]
        for i in moved_leaves.intersection(op.inputs):  # made when it is read: together they take room
            known[i] = nudged(i)
            if i in leaves and i not in marks:
                marks[i] = fingerprint(known[i])
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
            if last[i] == index or i in moved_leaves:
                known.pop(i, None)
        if index in moved_leaves or index not in last:
            del known[index]
    return moves


def _layouts_of(program: Program, leaves: Set[int]) -> set[int]:
    """Return leaves, and the operations that only move their elements."""
    moved = set(leaves)
    for op in program.operations:
        if op.is_layout and len(op.inputs) == 1 and op.inputs[0] in moved:
            moved.add(op.index)
    return moved


class _Nudged:
    """Nudged leaves of a program; those that many read are kept, as a stack of which each layer reads a
    slice."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._consumers = program.consumers()
        self._kept: dict[int, np.ndarray] = {}
        self._bytes = 0

    def __call__(self, index: int) -> Any:
        """Return a nudged leaf, or what an operation makes of one by moving its elements."""
        op = self._program.operations[index]
        if op.run is None:
            return self._kept[index] if index in self._kept else self._leaf(index)
        return self._program.apply(op, {i: self(i) for i in op.inputs}, {})

    def _leaf(self, index: int) -> np.ndarray:
        value = self._program.cache[index]
        moved = nudge_numbers(value, NUDGE, str(index))
        huge = np.abs(value) >= HUGE  # what stands for infinity is exact
        moved = np.where(huge, value, moved) if huge.any() else moved
        is_read_often = len(self._consumers[index]) >= OFTEN
        if is_read_often and self._bytes + moved.nbytes <= KEPT_BYTES:
            self._kept[index] = moved
            self._bytes += moved.nbytes
        return moved


def _is_far(program: Program, op: Operation, value: Any, movement: Movement | None) -> bool:
    """Return whether nudges moved a value farther than may ever count as rounding, or its elements to
    other places."""
    before = program.cache.get(op.index)
    if op.mark is None or not isinstance(value, np.ndarray):
        return False
    if op.is_layout and isinstance(before, np.ndarray):
        some = tuple(slice(0, None, n // SAMPLED + 1) for n in op.shape)
        return not distance(before[some], value[some]) <= FARTHEST.norm
    return movement is not None and not movement.norm <= FARTHEST.norm


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
    return op.run is None and is_floating(program.cache.get(op.index))


def _moved(op: Operation, mark: np.ndarray, value: Any, before: Any) -> Movement:
    """How far a value moved.

    Single numbers move by more than means of many do: by the root of their number.
    """
    assert op.mark is not None
    means, extremes = fingerprint_distances(op.mark, mark)
    size = max(-op.mark[LEAST], op.mark[MOST])
    single = means * math.sqrt(op.size)
    if math.isfinite(single) and size:
        extremes = max(extremes, single * math.sqrt(op.mark[SQUARE]) / size)
    if isinstance(before, np.ndarray):
        norm, grain = _distances(before, np.asarray(value))
    else:
        norm, grain = single, min(single, 1.0) * math.sqrt(max(op.mark[SQUARE], mark[SQUARE]))
    return Movement(means, extremes, norm, grain if math.isfinite(grain) else 0.0)


def _distances(before: np.ndarray, value: np.ndarray) -> tuple[float, float]:
    """Return the relative distance in the norm, and the root mean square of the difference; by
    `distance`, which is slow, only where there are infinities."""
    if before.dtype != np.float64 or before.shape != value.shape:
        return distance(before, value), 0.0
    own, apart = squares(before, value)
    if not math.isfinite(own + apart):
        with np.errstate(invalid="ignore", over="ignore"):
            finite = (value - before)[(np.abs(before) < HUGE) & (np.abs(value) < HUGE)]
        return distance(before, value), float(np.linalg.norm(finite)) / math.sqrt(before.size)
    grain = math.sqrt(apart / max(before.size, 1))
    return (math.sqrt(apart / own) if own else distance(before, value)), grain
