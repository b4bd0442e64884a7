"""Matching the modules of two programs by the values that they compute, whatever their names and
wherever their authors split them, and counting the places where they part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import is_weak

SHARED = 0.5
"""Share of all values that two modules compute which both must compute for them to match."""


@dataclass(frozen=True)
class Module:
    """A module of B, with all modules below it."""

    path: str
    of_a: str
    """The module of A that computes the same values, once B is mended; empty where none has half of
    them."""
    results: int
    """How many of its values other modules read, or the program returns."""
    same: int
    """How many of these A has as well, before B is mended."""
    places: int
    """How often B parts from A in its own code, modules below it left out."""

    @property
    def state(self) -> str:
        """How the module compares, in a word or two."""
        if self.places:
            return "parts here" if self.places == 1 else f"parts here {self.places} times"
        return "same" if self.same == self.results else "differs"


def modules_of(
    a: Program,
    b: Program,
    met: Mapping[int, Sequence[int]],
    mended: Program,
    then: Mapping[int, Sequence[int]],
    places: Iterable[str],
) -> tuple[Module, ...]:
    """Return the modules of B, in the order in which they begin.

    Args:
        met: for each value of B, the values of A that it meets.
        mended: B patched with A's values at the places where the two part.
        then: for each value of `mended`, the values of A that it meets.
        places: the module of each place.
    """
    parted = Counter(places)
    partners = _partners(a, mended, then)
    returned = {index for _, index in b.outputs}
    results: dict[str, list[int]] = defaultdict(list)
    for op, readers in zip(b.operations, b.consumers(), strict=True):
        read_in = {b.operations[i].module for i in readers}
        # a value is a module's result if it is computed, not weak, and read outside of the module
        counts = op.run is not None and op.size > 0 and not is_weak(op)
        for path in _above(op.module):
            own = results[path]  # from its first operation on, be it a result or not
            if counts and (op.index in returned or any(path not in _above(each) for each in read_in)):
                own.append(op.index)
    return tuple(
        Module(path, partners.get(path, ""), len(own), sum(i in met for i in own), parted[path])
        for path, own in results.items()
    )


@cache
def _above(path: str) -> tuple[str, ...]:
    """Return the paths of a module and of those that contain it, the outermost first."""
    names = path.split(".") if path else []
    return tuple(".".join(names[: end + 1]) for end in range(len(names)))


def _partners(a: Program, b: Program, met: Mapping[int, Sequence[int]]) -> dict[str, str]:
    """Match each module of B to the module of A with the largest share of common values."""
    name: dict[int, int] = {}
    for several in met.values():
        for index in several:  # several of A's values may be the same numbers
            name[index] = min(several)
    of_a = _values(a.operations, name)
    of_b = _values(b.operations, {index: name[several[0]] for index, several in met.items()})
    holders: dict[int, set[str]] = defaultdict(set)
    for path, values in of_a.items():
        for value in values:
            holders[value].add(path)
    partners = {}
    for path, values in of_b.items():
        shared = Counter(holder for value in values for holder in holders[value])
        shares = {each: n / len(values | of_a[each]) for each, n in shared.items()}
        # of equals that of the same depth: a module may do nothing but call another
        best = max(
            shares, key=lambda each: (shares[each], -abs(each.count(".") - path.count("."))), default=""
        )
        if best and shares[best] >= SHARED:
            partners[path] = best
    return partners


def _values(operations: Sequence[Operation], name: Mapping[int, int]) -> dict[str, set[int]]:
    """Collect the values that each module computes, as `name` numbers them: no leaves, no layout."""
    values: dict[str, set[int]] = defaultdict(set)
    for op in operations:
        if op.run is not None and not op.is_layout and op.index in name and not is_weak(op):
            for path in _above(op.module):
                values[path].add(name[op.index])
    return values
