"""A value of A's in the place of one of B's, and what that mends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from parity.verifier.operations.program import Program

STEPS = 2
"""Operations behind a value that must read it alike for it to be a twin."""


@dataclass(frozen=True)
class Trial:
    """A value of A's in the place of one of B's."""

    x: int
    y: int
    value: np.ndarray
    """A's, in B's layout."""
    readers: tuple[int, ...]
    """The operations of B that read it; empty where it replaces what B computed."""
    twins: tuple[int, ...] = ()
    """Further values of B that its line makes just so, and that are replaced with it."""

    @property
    def places(self) -> tuple[int, ...]:
        """Where it is put, in B's order."""
        return (self.y, *self.twins)

    def feed(self, b: Program) -> Program:
        """B with A's value there."""
        edges = {
            (read, reader): self.at(b, read)
            for read in self.places
            for reader in self.readers
            if read in b.operations[reader].inputs
        }
        return b.fed({}, edges) if edges else b.fed({i: self.at(b, i) for i in self.places}, {})

    def at(self, b: Program, index: int) -> np.ndarray:
        """A's value as it is put in one of its places; twins may have other axes of length one."""
        return self.value if index == self.y else self.value.reshape(b.operations[index].shape)


@dataclass(frozen=True)
class Repair:
    """A trial that closes, and B fed with it."""

    trial: Trial
    own: np.ndarray
    """B's own value there."""
    fed: Program
    size: int
    """Operations before its two ends."""
    left: int
    """How many operations of B still part from A."""
    order: bool
    """Whether nothing is computed between: the same numbers in another order."""
    strange: int
    """How many values B reads before its end that A does not read before its own."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Of two repairs, the lower is the better.

        Of two branches that part alike, such as sines of rows and of columns, the value of either closes
        either; but only its own is computed from the same.
        """
        return self.left, self.size, self.strange


class Twins:
    """Values that one line of B makes several times, and that are read alike: rotary tables for queries
    and for keys, in every layer. If they are wrong, all are, and none of them alone mends what reads
    two."""

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
        """The others, if a value is the first of several."""
        if index not in self._known:
            self._known[index] = self._find(index)
        return self._known[index]

    def _find(self, index: int) -> tuple[int, ...]:
        group = self._of.get(index, [])
        if len(group) < 2:
            return ()
        read = read_by(self._program, self._readers, index, STEPS)
        alike = [i for i in group if read_by(self._program, self._readers, i, STEPS) == read]
        if len(alike) < 2 or alike[0] != index:
            return ()
        values = {i: np.ravel(each) for i, each in self._program.values(alike).items()}
        nan = values[index].dtype.kind in "fc"
        same = [i for i in alike[1:] if np.array_equal(values[i], values[index], equal_nan=nan)]
        behind = self._program.behind({index}) if same else set()
        return tuple(i for i in same if i not in behind)


def read_by(
    program: Program, readers: Sequence[Sequence[int]], index: int, steps: int = 0
) -> frozenset[tuple[object, ...]]:
    """By what a value is read: names, lines and which operand it is; and what reads that in turn."""
    found, stack = set(), [(index, steps)]
    while stack:
        read, left = stack.pop()
        for reader in readers[read]:
            op = program.operations[reader]
            if not op.is_layout:
                found.add((left, op.name, op.source, op.inputs.index(read)))
            if left or op.is_layout:
                stack.append((reader, left if op.is_layout else left - 1))
    return frozenset(found)
