"""Activation patching: B run with A's value in place of one of its own, and what that mends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.verifier.programs.program import Program

PRODUCTS = frozenset(["mul", "matmul", "linear", "addmm", "conv"])
"""Operations that make zeros of zeros, whatever else they read."""
STEPS = 2
"""Operations downstream of a value that must read it alike for it to be a sibling."""


@dataclass(frozen=True)
class Trial:
    """A value of A's to be patched into B, in place of one of B's."""

    x: int
    y: int
    value: np.ndarray
    """A's value, in B's layout."""
    readers: tuple[int, ...]
    """The consumers in B that read it; empty where it replaces what B computed, for all of them."""
    siblings: tuple[int, ...] = ()
    """Further, equal values of B that the same line makes, and that are replaced as well."""

    @property
    def places(self) -> tuple[int, ...]:
        """The values of B that are replaced, in B's order."""
        return (self.y, *self.siblings)

    def feed(self, b: Program) -> Program:
        """Return B patched with A's value."""
        return b.fed(*self.patches(b))

    def patches(self, b: Program) -> tuple[dict[int, np.ndarray], dict[tuple[int, int], np.ndarray]]:
        """Return what is patched into B: values by operation, or by operation and reader."""
        edges = {
            (read, reader): self.at(b, read)
            for read in self.places
            for reader in self.readers
            if read in b.operations[reader].inputs
        }
        return ({}, edges) if edges else ({i: self.at(b, i) for i in self.places}, {})

    def at(self, b: Program, index: int) -> np.ndarray:
        """Return A's value for one of its places; siblings may have other axes of length one."""
        return self.value if index == self.y else self.value.reshape(b.operations[index].shape)


def wipes(
    trial: Trial,
    a: Program,
    b: Program,
    readers_a: Sequence[Sequence[int]],
    readers_b: Sequence[Sequence[int]],
) -> bool:
    """Return whether a trial makes a factor of zeros that are none in A, such as a bias: a branch that
    is gone differs no more, and nothing is mended."""
    if np.any(trial.value):
        return False
    reading = trial.readers or [reader for each in trial.places for reader in readers_b[each]]
    return _are_factors(b, readers_b, reading) and not _are_factors(a, readers_a, readers_a[trial.x])


def _are_factors(program: Program, readers: Sequence[Sequence[int]], reading: Iterable[int]) -> bool:
    """Return whether one of the readers of a value, in any layout, is a product."""
    stack = list(reading)
    while stack:
        op = program.operations[stack.pop()]
        if op.name in PRODUCTS:
            return True
        if op.is_layout:
            stack += readers[op.index]
    return False


@dataclass(frozen=True)
class Repair:
    """A trial that closes, and B patched with it."""

    trial: Trial
    own: np.ndarray
    """B's own value there."""
    fed: Program
    size: int
    """Operations before its two ends."""
    left: int
    """How many operations of B still part from A."""
    order: bool
    """Whether A's value is B's in another order, with nothing computed between."""
    strange: int
    """How many values B reads before its end that A does not read before its own."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key: of two repairs, the lower is the better.

        Of two branches that part alike, such as sines of rows and of columns, the value of either
        closes either; but only its own is computed from the same values.
        """
        return self.left, self.size, self.strange


class Siblings:
    """Equal values that one line of B makes several times, and that are read alike.

    Such as rotary tables for queries and for keys, in every layer. If one is wrong, all are, and none
    of them alone mends an operation that reads two.
    """

    def __init__(
        self, program: Program, readers: Sequence[Sequence[int]], among: Collection[int]
    ) -> None:
        self._program, self._readers = program, readers
        self._of: dict[int, list[int]] = {}
        self._known: dict[int, tuple[int, ...]] = {}
        groups: dict[tuple[object, ...], list[int]] = {}
        for index in sorted(among):
            op = program.operations[index]
            if op.mark is not None and op.source is not None and op.kind == "operation":
                key = op.name, op.source, tuple(n for n in op.shape if n != 1), op.mark.tobytes()
                self._of[index] = groups.setdefault(key, [])
                groups[key].append(index)

    def of(self, index: int) -> tuple[int, ...]:
        """Return a value's siblings: later, equal values that the same line makes."""
        if index not in self._known:
            self._known[index] = self._find(index)
        return self._known[index]

    def _find(self, index: int) -> tuple[int, ...]:
        group = self._of.get(index, [])
        if len(group) < 2:
            return ()
        read = read_by(self._program, self._readers, index, STEPS)
        siblings = [i for i in group if read_by(self._program, self._readers, i, STEPS) == read]
        if len(siblings) < 2 or siblings[0] != index:
            return ()
        values = {i: np.ravel(each) for i, each in self._program.values(siblings).items()}
        nan = values[index].dtype.kind in "fc"
        same = [i for i in siblings[1:] if np.array_equal(values[i], values[index], equal_nan=nan)]
        behind = self._program.behind({index}) if same else set()
        return tuple(i for i in same if i not in behind)


def read_by(
    program: Program, readers: Sequence[Sequence[int]], index: int, steps: int = 0
) -> frozenset[tuple[object, ...]]:
    """Describe the consumers of a value, and theirs for `steps` more: name, line and which operand."""
    readings, stack = set(), [(index, steps)]
    while stack:
        read, left = stack.pop()
        for reader in readers[read]:
            op = program.operations[reader]
            if not op.is_layout:
                readings.add((left, op.name, op.source, op.inputs.index(read)))
            if left or op.is_layout:
                stack.append((reader, left if op.is_layout else left - 1))
    return frozenset(readings)
