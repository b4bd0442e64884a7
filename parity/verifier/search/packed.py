"""Parameters that one side holds in several and the other in one: packed, split, stacked over layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.measure.tolerance import FACTOR, epsilon
from parity.verifier.programs.fingerprint import LEAST, MOST, same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import size_of
from parity.verifier.search.uses import Uses

SAMPLE = 512
SHARED = 1 / 8
"""Share of the smaller leaf that must be in the larger: stacked on one side, packed on the other."""
_ALL_FOUND = 0.9
"""Share of any numbers found by chance, above which nothing tells those that are shared: there are few
numbers of bfloat16."""
_MANTISSAS = (8, 11, 24, 53)
"""Bits of the mantissa of bfloat16, float16, float32 and float64."""
_TELLING = 8.0
"""Roundings above which a number of a gradient is told from zero."""


class Links:
    """What tells that a leaf of A and one of B hold some of the same numbers; less and less surely."""

    def __init__(
        self, a: Program, b: Program, of_a: Mapping[int, int], of_b: Mapping[int, int], uses: Uses
    ) -> None:
        """Prepare to link the leaves of which the gradients are given, by their leaves."""
        self._a, self._b, self._uses = a, b, uses
        self._of_a, self._of_b = of_a, of_b
        self._sorted: dict[tuple[str, int], np.ndarray] = {}
        self._linked: dict[tuple[int, int], bool] = {}
        self._modules: dict[str, set[str]] = {}

    def by_numbers(self, x: int, y: int) -> bool:
        """Return whether the leaves, or their gradients, share numbers that tell."""
        if (x, y) not in self._linked:
            self._linked[x, y] = self._share_values(x, y) or self._share_gradients(x, y)
        return self._linked[x, y]

    def by_use(self, x: int, y: int) -> bool:
        """Return whether they share numbers, or hold one and the same number and are used alike."""
        return self.by_numbers(x, y) or (
            self.by_number(x, y) and bool(self._uses.of_a(x) & self._uses.of_b(y))
        )

    def by_module(self, x: int, y: int) -> bool:
        """Return whether they hold one and the same number, and parameters beside them in their modules
        belong together."""
        beside = self._modules.get(_module(self._b, y), ())
        return self.by_number(x, y) and _module(self._a, x) in beside

    def by_number(self, x: int, y: int) -> bool:
        """Return whether each holds a single number many times, and that is the same."""
        mine, theirs = self._a.operations[x].number, self._b.operations[y].number
        return mine is not None and mine == theirs

    def know(self, group: tuple[Sequence[int], Sequence[int]]) -> None:
        """Note that leaves belong together, for those beside them."""
        here = {_module(self._a, x) for x in group[0]}
        for y in group[1]:
            self._modules.setdefault(_module(self._b, y), set()).update(here)

    def _share_values(self, x: int, y: int) -> bool:
        operations = self._a.operations[x], self._b.operations[y]
        if any(op.number is not None for op in operations):
            return False
        small, large = self._by_size(x, y, operations[0].size <= operations[1].size)
        return holds_some(self._in_order(*large), small[0].cache[small[1]])

    def _share_gradients(self, x: int, y: int) -> bool:
        x_, y_ = self._of_a[x], self._of_b[y]
        of_a, of_b = self._a.operations[x_], self._b.operations[y_]
        rounding = max(of_a.grain, of_b.grain, epsilon("float64") * min(size_of(of_a), size_of(of_b)))
        small, large = self._by_size(x_, y_, of_a.size <= of_b.size)
        numbers = _sample(small[0].cache[small[1]])
        numbers = numbers[np.abs(numbers) > _TELLING * FACTOR * rounding]
        return _found(numbers, self._in_order(*large), FACTOR * rounding)

    def _by_size(
        self, x: int, y: int, mine_is_smaller: bool
    ) -> tuple[tuple[Program, int], tuple[Program, int]]:
        mine, theirs = (self._a, x), (self._b, y)
        return (mine, theirs) if mine_is_smaller else (theirs, mine)

    def _in_order(self, program: Program, index: int) -> np.ndarray:
        key = program.name, index
        if key not in self._sorted:
            self._sorted[key] = np.sort(program.cache[index], axis=None)
        return self._sorted[key]


def holds_some(among: np.ndarray, value: np.ndarray) -> bool:
    """Return whether many of a value's numbers, zeros left out, are in a sorted array, not by chance."""
    numbers = np.unique(_sample(value))
    return _found(numbers[numbers != 0], among, 0.0)


def _sample(value: np.ndarray) -> np.ndarray:
    return np.ravel(value)[:: max(value.size // SAMPLE, 1)]


def _found(numbers: np.ndarray, among: np.ndarray, close: float) -> bool:
    """Return whether many of some numbers are within a distance of a number of a sorted array, more than
    of the numbers beside them: of float32 a tenth is by chance among the seven million of a stack."""
    if not numbers.size or not among.size:
        return False

    def share(numbers: np.ndarray) -> float:
        first = np.searchsorted(among, numbers - close)
        near = among[np.minimum(first, among.size - 1)]
        return float((np.abs(near - numbers) <= close).mean())

    found = share(numbers)
    if found < SHARED:
        return False
    step = 3 * close or _units(numbers)
    chance = sum(share(numbers + times * step) for times in (-2, -1, 1, 2)) / 4
    return chance > _ALL_FOUND or found - chance >= SHARED * (1 - chance)


def _units(numbers: np.ndarray) -> np.ndarray:
    """Return how far apart numbers lie of the smallest type that holds these."""
    mantissas, exponents = np.frexp(numbers)
    bits = next((n for n in _MANTISSAS if not np.modf(np.ldexp(mantissas, n))[0].any()), _MANTISSAS[-1])
    return np.ldexp(1.0, exponents - bits)


def _module(program: Program, leaf: int) -> str:
    """Return the path of the module that holds a leaf."""
    parts = program.operations[leaf].label.split(".")
    parts = parts[:-1] if parts[-1] == "value" else parts  # of NNX
    return ".".join(parts[:-1])


def holds_the_same(a: Program, b: Program, mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether leaves of A hold together the numbers that leaves of B hold together."""
    of_a, of_b = [a.operations[x] for x in mine], [b.operations[y] for y in theirs]
    size = sum(op.size for op in of_a)
    if not size or size != sum(op.size for op in of_b):
        return False
    return same(mark_of_all(of_a), mark_of_all(of_b))


def mark_of_all(operations: Sequence[Operation]) -> np.ndarray:
    """Return the fingerprint of several values together."""
    marks, sizes = np.array([op.mark for op in operations]), np.array([op.size for op in operations])
    mark = sizes @ marks / sizes.sum()
    mark[LEAST], mark[MOST] = marks[:, LEAST].min(), marks[:, MOST].max()
    return mark
