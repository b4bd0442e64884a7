"""Pairing the outputs of two programs, and the layouts in which the two of a pair may be equal."""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from parity.measure.nearness import LEAST as NEAREST
from parity.measure.nearness import MOST as FARTHEST
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import distance, squares
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import LayoutChange, conventional, layout_changes
from parity.verifier.search.meeting import Index, is_noise, is_weak, meet

Named = tuple[str, int]
"""Path and operation of an output."""

Pairs = list[tuple[int, int]]
"""Pairs of outputs, of A and of B, that are compared."""


class Paired(NamedTuple):
    """Which outputs are compared."""

    pairs: Pairs
    left_out: list[str]
    """Outputs without a counterpart, as "A's logits"."""
    tally: dict[str, tuple[int, int]]
    """How many of A's are compared, and of how many, by what they are."""
    zero: tuple[str, ...] = ()
    """Compared outputs that are zero in theory: nothing but round-off."""
    unread: tuple[str, ...] = ()
    """Leaves of A without a counterpart that reach no output, and so have no gradient to compare."""


def pair_outputs(a: Program, b: Program) -> Paired:
    """Return the pairs of outputs to compare, and the names of the outputs without a counterpart."""
    of_a, of_b = list(a.outputs), list(b.outputs)
    pairs: Pairs = []

    def take(x: tuple[str, int], y: tuple[str, int]) -> None:
        pairs.append((x[1], y[1]))
        of_a.remove(x)
        of_b.remove(y)

    def fits(x: tuple[str, int], y: tuple[str, int]) -> bool:
        return a.operations[x[1]].size == b.operations[y[1]].size

    for x in list(of_a):  # by name
        same = [y for y in of_b if y[0] == x[0] and x[0] and fits(x, y)]
        if same:
            take(x, same[0])
    index = Index(a)
    for y in list(of_b):  # by value
        partners = {each.index for each in index.meets(b.operations[y[1]])}
        same = [x for x in of_a if x[1] in partners and fits(x, y)]
        if same:
            take(same[0], y)
    for x, y in _kin(a, b, index, of_a, of_b):  # by what they are made of
        take(x, y)
    for x in list(of_a):  # by size, in order
        same = [y for y in of_b if fits(x, y)]
        if same:
            take(x, same[0])
    alone = len(a.outputs) == len(b.outputs) == 1
    for x in list(of_a):  # of one name or the only ones, of other sizes: they differ
        same = [y for y in of_b if alone or (y[0] == x[0] and x[0])]
        if same:
            take(x, same[0])
    left = [f"A's {n or 'output'}" for n, _ in of_a] + [f"B's {n or 'output'}" for n, _ in of_b]
    zero = (a.path(x) or "output" for x, _ in pairs if is_noise(a.operations[x]))
    tally = {"outputs": (len(pairs), len(pairs) + len(of_a))}
    return Paired(pairs, left, tally, tuple(f"A's {each}" for each in zero))


def _kin(
    a: Program, b: Program, index: Index, of_a: Sequence[Named], of_b: Sequence[Named]
) -> list[tuple[Named, Named]]:
    """Pair outputs that are computed from the same values, where there are several of a size.

    First those made of one parameter, element by element, as the outputs of a training step are; then
    those that share most of the values nearest before them.
    """
    sizes = Counter([a.operations[i].size for _, i in of_a] + [b.operations[i].size for _, i in of_b])
    several = {size for size, count in sizes.items() if count > 2}
    if not several:
        return []
    met = meet(b.operations, index)
    class_a: dict[int, int] = {}
    for partners in met.values():  # a value may be held by several operations
        first = min(class_a.get(each, each) for each in partners)
        class_a.update(dict.fromkeys(partners, first))
    class_b = {i: class_a[partners[0]] for i, partners in met.items() if not is_weak(b.operations[i])}
    pairs: list[tuple[Named, Named]] = []
    for made in (made_of, _read):
        rest_a = [
            x for x in of_a if a.operations[x[1]].size in several and x not in (p for p, _ in pairs)
        ]
        rest_b = [
            y for y in of_b if b.operations[y[1]].size in several and y not in (q for _, q in pairs)
        ]
        kin_a = [{class_a[i] for i in made(a, x, class_a) if i in class_a} for _, x in rest_a]
        kin_b = [{class_b[i] for i in made(b, y, class_b) if i in class_b} for _, y in rest_b]
        ranked = sorted(
            (-len(mine & theirs) / len(mine | theirs), abs(i - j), i, j)
            for i, mine in enumerate(kin_a)
            for j, theirs in enumerate(kin_b)
            if mine & theirs and a.operations[rest_a[i][1]].size == b.operations[rest_b[j][1]].size
        )
        taken: set[tuple[str, int]] = set()
        for *_, i, j in ranked:
            if not {("A", i), ("B", j)} & taken:
                taken |= {("A", i), ("B", j)}
                pairs.append((rest_a[i], rest_b[j]))
    return pairs


def _read(program: Program, output: int, met: Container[int]) -> set[int]:
    """Return the values nearest before an output that the other program has as well."""
    nearest: set[int] = set()
    seen, stack = {output}, list(program.operations[output].inputs)
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            if i in met:
                nearest.add(i)
            else:
                stack += program.operations[i].inputs
    return nearest


class Outputs:
    """The compared pairs of outputs, each with the layouts in which the two may be equal.

    An output that is made of one parameter, element by element, as a step's new parameters are, has
    the layout of that parameter in either program. Other outputs of one shape are compared as they
    are, those of two shapes with channels first or last. Where that does not bring one shape to the
    other, any change of axes is tried, so that further faults are found; but it is a difference.

    Two outputs are equal up to what rounding may do to either. Two that are zero up to rounding, such as
    gradients that are zero in theory, are equal whatever their sizes.
    """

    def __init__(self, a: Program, b: Program, pairs: Pairs) -> None:
        self.pairs = pairs
        leaves = list(_equal_parameters(a, b))
        self._limits: dict[tuple[int, int], float] = {}
        """Largest relative distance at which a pair is equal."""
        self._grains: dict[tuple[int, int], tuple[float, float]] = {}
        """Root mean squares of what rounding moves the outputs of a pair by."""
        self._changes: dict[tuple[int, int], list[LayoutChange]] = {}
        self._last: tuple[Program, Program, Pairs] | None = None
        """Two programs, and the pairs that differ between them: the last that were asked for."""
        self.unlike: Pairs = []
        """Pairs between whose shapes there is no conventional change of layout."""
        for x, y in pairs:
            self._limits[x, y] = a.operations[x].near.or_more(b.operations[y].near).norm
            self._grains[x, y] = a.operations[x].grain, b.operations[y].grain
            given, shape = a.operations[x].shape, b.operations[y].shape
            known = [] if a.is_aligned else _known(a, b, (x, y), leaves)
            changes = known or list(conventional(given, shape))
            if not changes:
                self.unlike.append((x, y))
                changes = list(layout_changes(given, shape))
            self._changes[x, y] = changes

    def of(self, renamed: Mapping[int, int]) -> Outputs:
        """Return the same pairs with B's outputs renumbered; `renamed` maps old to new operations."""
        other = copy.copy(self)
        other._last = None
        other.pairs, other.unlike = (
            [(x, renamed[y]) for x, y in pairs] for pairs in (self.pairs, self.unlike)
        )
        for name in ("_changes", "_limits", "_grains"):
            of_pairs = getattr(self, name)
            setattr(other, name, {(x, renamed[y]): value for (x, y), value in of_pairs.items()})
        return other

    def arrangements(self, pair: tuple[int, int], of_a: Any) -> Iterator[np.ndarray]:
        """Yield A's output in the layouts in which it may be B's."""
        of_a = np.asarray(of_a)
        return (each.of(of_a) for each in self._changes[pair])

    def equal(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> bool:
        """Return whether two outputs are equal up to rounding and a known change of layout."""
        of_b = np.asarray(of_b)
        if self._are_noise(pair, of_a, of_b):
            return True
        if self._is_exact(pair, of_a, of_b):
            return any(np.array_equal(each, of_b) for each in self.arrangements(pair, of_a))
        return any(self._is_near(pair, each, of_b) for each in self.arrangements(pair, of_a))

    def error(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> float:
        """Return the relative distance of two outputs; infinite between shapes that cannot be compared,
        0 between outputs that are nothing but round-off."""
        if pair in self.unlike:
            return np.inf
        of_b = np.asarray(of_b)
        if self._are_noise(pair, of_a, of_b):
            return 0.0
        return min((distance(each, of_b) for each in self.arrangements(pair, of_a)), default=np.inf)

    def _are_noise(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> bool:
        """Return whether both outputs are zero up to rounding, and one of them is not zero."""
        limits = [FACTOR * grain for grain in self._grains[pair]]
        both = [np.asarray(each) for each in (of_a, of_b)]
        for value, limit in zip(both, limits, strict=True):  # a few large numbers tell at once
            if np.abs(value.flat[:64]).max(initial=0.0) > limit * np.sqrt(value.size):
                return False
        sizes = [*map(_size, both)]
        return any(sizes) and all(size <= limit for size, limit in zip(sizes, limits, strict=True))

    def _is_near(self, pair: tuple[int, int], of_a: np.ndarray, of_b: np.ndarray) -> bool:
        """Return whether two outputs of one layout differ by no more than rounding."""
        apart = distance(of_a, of_b)
        if apart <= self._limits[pair]:
            return True
        grain_a, grain_b = self._grains[pair]
        if _size(of_b) <= FACTOR * grain_b:  # B's round-off is no value of A's
            grain_b = 0.0
        return bool(np.isfinite(apart) and apart * _size(of_a) <= FACTOR * max(grain_a, grain_b))

    def nearest(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> LayoutChange | None:
        """Return the change of layout that brings A's output closest to B's; None if there is none."""
        of_a, of_b = np.asarray(of_a), np.asarray(of_b)
        return min(self._changes[pair], key=lambda each: distance(each.of(of_a), of_b), default=None)

    def _is_exact(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> bool:
        """Return whether two outputs are integers that no rounding reaches."""
        integers = np.asarray(of_a).dtype.kind in "iu" and np.asarray(of_b).dtype.kind in "iu"
        return integers and self._limits[pair] <= NEAREST.norm

    def axes(self, pair: tuple[int, int], of_a: Any, of_b: Any) -> tuple[int, ...]:
        """Return A's axes in the order of B's output; empty where no order of whole axes is B's."""
        for each in self._changes[pair]:
            whole = each.split == np.shape(of_a) and each.merged == each.shape
            if whole and distance(each.of(np.asarray(of_a)), np.asarray(of_b)) <= self._limits[pair]:
                return each.axes
        return ()

    def unequal(self, a: Program, b: Program) -> Pairs:
        """Return the pairs that differ between two programs, either of which may be patched."""
        if self._last is None or self._last[0] is not a or self._last[1] is not b:
            pairs = [(x, y) for x, y in self.pairs
                     if not self.equal((x, y), a.values([x])[x], b.values([y])[y])]  # fmt: skip
            self._last = a, b, pairs
        return list(self._last[2])


def _size(value: Any) -> float:
    """Return the root mean square of an array's numbers."""
    value = np.abs(value).astype(np.float64, copy=False)
    return float(np.sqrt(squares(value, value)[0] / max(value.size, 1)))


def _known(
    a: Program, b: Program, pair: tuple[int, int], leaves: list[tuple[Operation, Operation]]
) -> list[LayoutChange]:
    """Return the changes of layout between equal parameters from which the two outputs are made; without
    any, between equal parameters of the outputs' shapes, unless these two shapes are one."""
    x, y = pair
    given, shape = a.operations[x].shape, b.operations[y].shape
    fitting = [(p, q) for p, q in leaves if (p.shape, q.shape) == (given, shape)]
    if not fitting:
        return []
    made_a, made_b = made_of(a, x), made_of(b, y)
    own = [(p, q) for p, q in fitting if p.index in made_a and q.index in made_b]
    if not own and given == shape:
        return []
    changes: dict[LayoutChange, None] = {}
    for p, q in own or fitting:
        mine, theirs = a.cache[p.index], b.cache[q.index]
        for each in layout_changes(given, shape):
            if distance(each.of(mine), theirs) <= FARTHEST.norm:
                changes[each] = None
    return list(changes)


def _equal_parameters(a: Program, b: Program) -> Iterator[tuple[Operation, Operation]]:
    """Yield pairs of parameters with more than one axis that hold the same numbers."""
    index = Index(a, {op.index for op in a.operations if _is_held(op)})
    for q in b.operations:
        if _is_held(q) and sum(n > 1 for n in q.shape) > 1:
            yield from ((p, q) for p in index.meets(q) if p.size == q.size)


def _is_held(op: Operation) -> bool:
    """Return whether a value is a parameter, or a constant, as which a parameter is recorded that a
    function finds outside its arguments."""
    return op.run is None and op.kind in ("parameter", "constant")


def made_of(program: Program, output: int, _: Container[int] = ()) -> set[int]:
    """Return the leaves of an output's size from which the fewest element-wise operations make it: for a
    parameter after a step, the parameter before it."""
    size = program.operations[output].size
    leaves: set[int] = set()
    seen, near, depth = {output}, deque([(output, 0)]), -1
    while near:
        index, steps = near.popleft()
        if depth >= 0 and steps > depth:
            break
        op = program.operations[index]
        if op.run is None:
            if op.size == size and not is_weak(op):
                leaves.add(index)
                depth = steps
            continue
        for i in op.inputs if op.name not in ("matmul", "conv") else ():
            each = program.operations[i]
            if i not in seen and (each.size == size or each.mark is None):
                seen.add(i)
                entry = i, steps + (not op.is_layout)
                near.appendleft(entry) if op.is_layout else near.append(entry)
    return leaves
