"""Results of matching: which part of a leaf of A is which part of a leaf of B, in which arrangement,
and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from parity.porting.dialects.layout import Layout

Shape = tuple[int, ...]
Grade = Literal["by value", "by place"]
"""How sure a link is. ``by value``: the numbers are the same, and no other leaf has them. ``by
place``: the numbers do not decide (all zeros, or found several times), but the leaves around leave one
candidate."""


class Slices(NamedTuple):
    """Slices of a leaf along one axis."""

    axis: int
    start: int
    stop: int
    every: int
    """Length of a stretch: the part has the slices `start` to `stop` of every stretch. The length of the
    axis if there is only one."""

    def take(self, array: np.ndarray) -> np.ndarray:
        """Return these slices of an array, joined."""
        front = array.shape[: self.axis]
        behind = array.shape[self.axis + 1 :]
        cut = array.reshape(*front, -1, self.every, *behind)
        cut = cut[(*(slice(None),) * (self.axis + 1), slice(self.start, self.stop))]
        return cut.reshape(*front, -1, *behind)

    def shape(self, shape: Shape) -> Shape:
        """Return the shape that `take` makes of a shape."""
        length = shape[self.axis] // self.every * (self.stop - self.start)
        return (*shape[: self.axis], length, *shape[self.axis + 1 :])

    def text(self, shape: Shape) -> str:
        """Return the part as text: ``[16:32]`` for the first axis."""
        spans = f"{self.start}:{self.stop}" if self.stop - self.start > 1 else str(self.start)
        if self.every != shape[self.axis]:
            spans += f" of every {self.every}"
        return f"[{', '.join([':'] * self.axis + [spans])}]"


class SliceOrder(NamedTuple):
    """Another order of the slices along an axis in A than in B."""

    axis: int
    indices: np.ndarray
    """Number in B of each slice of A."""
    words: str


@dataclass(frozen=True)
class Arrangement:
    """Steps that turn B's tensor into A's: a layout, then slices in another order."""

    layout: str
    """Layout as in `parity.porting.dialects.layout`, B's axes first; empty if none was found."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the layout's letters."""
    orders: tuple[SliceOrder, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the arrangement was found."""
        return bool(self.layout)

    @property
    def plain(self) -> bool:
        """Whether no number moves; the shape may change."""
        return self.known and not self.orders and not self.permuted

    @property
    def permuted(self) -> bool:
        """Whether axes are in another order."""
        theirs, ours = self._letters
        return theirs != ours

    @property
    def transposed(self) -> bool:
        """Whether two axes are exchanged and nothing else happens."""
        theirs, _ = self._letters
        return len(theirs) == 2 and self.permuted and not self.orders and "(" not in self.layout

    @cached_property
    def _letters(self) -> tuple[list[str], list[str]]:
        sides = Layout.parse(self.layout) if self.layout else Layout((), ())
        return [x for axis in sides.theirs for x in axis], [x for axis in sides.ours for x in axis]

    def apply(self, theirs: np.ndarray) -> np.ndarray:
        """Arrange B's part as A's."""
        array = Layout.parse(self.layout).apply(theirs, self.sizes)
        for order in self.orders:
            array = array.take(order.indices, order.axis)
        return array

    def words(self, shape: Shape, theirs: Shape) -> str:
        """Return the arrangement in words.

        Args:
            shape: shape of A's part.
            theirs: shape of B's part.
        """
        if not self.known:
            return "same numbers, in an order that was not recognised"
        changes = []
        if self.transposed:
            changes.append("transposed")
        elif self.permuted:
            changes.append(f"axes permuted, {self.layout}")
        elif shape != theirs:
            changes.append("reshaped")
        return "; ".join([*changes, *(order.words for order in self.orders)]) or "equal"


class Link(NamedTuple):
    """A statement that one part of a leaf of A is one part of a leaf of B."""

    a: str
    part_a: Slices | None
    """None: the whole leaf."""
    b: str
    part_b: Slices | None
    kind: np.dtype
    """Type in which the two are equal."""
    arrangement: Arrangement
    grade: Grade = "by value"
    why: str = ""
    """Evidence for the grade, if that is not the values."""


class Sum(NamedTuple):
    """A leaf of one side that is the sum of a leaf and of a row of a table of the other side."""

    side: Literal["a", "b"]
    """Side that has the sum."""
    name: str
    term: str
    table: str
    row: int

    @property
    def words(self) -> str:
        """Right-hand side of the equation, as text."""
        other = "B" if self.side == "a" else "A"
        return f"{self.term} + {self.table}[{self.row}] of {other}"


@dataclass(frozen=True, repr=False)
class Matched:
    """Result of matching two sets of leaves."""

    a: Mapping[str, Shape]
    b: Mapping[str, Shape]
    types_a: Mapping[str, np.dtype]
    types_b: Mapping[str, np.dtype]
    links: tuple[Link, ...]
    """Links, in the order of A's leaves and of their parts."""
    ambiguous: Mapping[str, tuple[str, ...]]
    """Leaves of A with several candidates in B, each with its candidates."""
    ambiguous_b: Mapping[str, tuple[str, ...]]
    """The same for leaves of B."""
    filled_a: Mapping[str, tuple[tuple[Slices, float], ...]] = field(default_factory=dict)
    """Stretches of leaves of A without a partner that hold one value throughout, each with its value."""
    filled_b: Mapping[str, tuple[tuple[Slices, float], ...]] = field(default_factory=dict)
    """The same for leaves of B."""
    sums: tuple[Sum, ...] = ()
    """Leaves that are sums of two tensors of the other side."""

    def __repr__(self) -> str:
        count = len({link.a for link in self.links}) if self.links else 0
        return (
            f"<Matched: partners of {count} of A's {len(self.a)} leaves; B has {len(self.b)};"
            f" {len(self.ambiguous)} ambiguous>"
        )

    def of(self, name: str) -> tuple[Link, ...]:
        """Return the links of a leaf of A."""
        return self._by_leaf.get(name, ())

    @cached_property
    def _by_leaf(self) -> dict[str, tuple[Link, ...]]:
        links: dict[str, tuple[Link, ...]] = {}
        for link in self.links:
            links[link.a] = (*links.get(link.a, ()), link)
        return links

    def rest(self, side: Literal["a", "b"]) -> tuple[str, ...]:
        """Return the leaves of one side that are not fully matched, and not ambiguous."""
        shapes, ambiguous, filled = (
            (self.a, self.ambiguous, self.filled_a)
            if side == "a"
            else (self.b, self.ambiguous_b, self.filled_b)
        )
        taken = dict.fromkeys(shapes, 0)
        for link in self.links:
            name, part = (link.a, link.part_a) if side == "a" else (link.b, link.part_b)
            taken[name] += math.prod(part.shape(shapes[name]) if part else shapes[name])
        for name, stretches in filled.items():
            taken[name] += sum(math.prod(part.shape(shapes[name])) for part, _ in stretches)
        for each in self.sums:
            size = math.prod((self.a if each.side == "a" else self.b)[each.name])
            for name in (each.name,) if each.side == side else (each.term, each.table):
                taken[name] += size
        whole = {name for name, shape in shapes.items() if taken[name] >= math.prod(shape)}
        linked = {link.a if side == "a" else link.b for link in self.links}
        linked |= {name for each in self.sums for name in (each.name, each.term, each.table)}
        return tuple(
            name
            for name in shapes
            if name not in ambiguous and (name not in whole or name not in linked)
        )

    @property
    def complete(self) -> bool:
        """Whether every leaf of both sides is fully matched, in a known arrangement."""
        unknown = any(not link.arrangement.known for link in self.links)
        return not (self.ambiguous or self.ambiguous_b or unknown or self.rest("a") or self.rest("b"))
