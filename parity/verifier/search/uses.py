"""Where parameters are used: the nearest values downstream of them that both programs have.

Names, the division into modules and the order in which gain and bias are applied do not matter: a gain
that is multiplied with the root first leads to the same normalised tokens. A parameter that is packed
or stacked is used wherever one of its parts is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index, is_weak, meet

MOST = 4096
"""Most operations that are followed from a parameter: what does not meet leads to all that is behind."""

Classes = Mapping[int, int]
"""Values that both programs have: by operation, a number that is one for all that hold the same."""


class Uses:
    """The uses of the leaves of two programs, each found when it is asked for."""

    def __init__(self, a: Program, b: Program) -> None:
        self._programs = a, b
        self._classes = classes_of(a, b)
        self._readers = a.consumers(), b.consumers()
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def of_a(self, leaf: int) -> frozenset[int]:
        """Return the classes of the values in which A uses a leaf."""
        return self._of(0, leaf)

    def of_b(self, leaf: int) -> frozenset[int]:
        """Return the classes of the values in which B uses a leaf."""
        return self._of(1, leaf)

    def shared(self, x: int, y: int) -> float:
        """Return the share of common uses among all uses of a leaf of A and one of B: 1 for the same."""
        here, there = self.of_a(x), self.of_b(y)
        return len(here & there) / max(len(here | there), 1)

    def _of(self, side: int, leaf: int) -> frozenset[int]:
        if (side, leaf) not in self._known:
            self._known[side, leaf] = frozenset(self._found(side, leaf))
        return self._known[side, leaf]

    def _found(self, side: int, leaf: int) -> set[int]:
        program, classes, readers = self._programs[side], self._classes[side], self._readers[side]
        own = classes.get(leaf)
        used: set[int] = set()
        seen, near = {leaf}, deque(readers[leaf])
        while near and len(seen) < MOST:
            index = near.popleft()
            if index in seen:
                continue
            seen.add(index)
            each = classes.get(index)
            if each is None or each == own or program.operations[index].is_layout:
                near.extend(readers[index])
            else:
                used.add(each)
        return used


def classes_of(a: Program, b: Program) -> tuple[Classes, Classes]:
    """Return the values of A, and of B, that the other program has as well."""
    of_a: dict[int, int] = {}
    met = meet([op for op in b.operations if not is_weak(op)], Index(a))
    for partners in met.values():  # a value may be held by several operations
        first = min(of_a.get(each, each) for each in partners)
        of_a.update(dict.fromkeys(partners, first))
    return of_a, {index: of_a[partners[0]] for index, partners in met.items()}
