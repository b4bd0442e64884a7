"""Matching by place: leaves whose values do not decide, such as fresh biases, by the leaves around them.

Nothing is guessed: a leaf gets a partner only if its modules leave exactly one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from parity.verifier.match.fingerprint import common_type
from parity.verifier.match.leaves import Leaves, modules_above
from parity.verifier.match.links import Slices
from parity.verifier.match.search import Equal, Key, keys


class Placed(NamedTuple):
    """Partners found by place, and leaves that remain ambiguous."""

    partners: list[tuple[Equal, str]]
    """Partners, each with the evidence."""
    ambiguous: dict[str, tuple[str, ...]]
    ambiguous_b: dict[str, tuple[str, ...]]


def place(a: Leaves, b: Leaves, known: list[Equal]) -> Placed:
    """Find the partners of leaves for which the modules around leave one candidate."""
    placed: list[tuple[Equal, str]] = []
    while True:
        links = [*known, *(each for each, _ in placed)]
        new = _beside(a, b, links) or [*_alone(a, b, links)]
        if not new:
            break
        placed += new
    ambiguous, ambiguous_b = _candidates(a, b, links)
    return Placed(placed, ambiguous, ambiguous_b)


def _beside(a: Leaves, b: Leaves, links: list[Equal]) -> list[tuple[Equal, str]]:
    """Find partners beside known ones: the bias of a weight that was joined, split or stacked."""
    ours = _Beside(a, [(x.a, x.part_a) for x in links])
    theirs = _Beside(b, [(x.b, x.part_b) for x in links])
    proposed: dict[tuple[str, Slices | None, str, Slices | None], tuple[Equal, str]] = {}
    for link in links:
        left = ours.stretches(link.a, link.part_a)
        right = theirs.stretches(link.b, link.part_b)
        for x, part_a, size, value in left:
            rivals = [each for each in left if (each[2], each[3]) == (size, value)]
            partners = [
                (y, part_b)
                for y, part_b, width, other in right
                if width == size and other == value and common_type(a.types[x], b.types[y])
            ]
            if len(partners) == len(rivals) == 1:
                y, part_b = partners[0]
                kind = common_type(a.types[x], b.types[y])
                assert kind is not None
                equal = Equal(x, part_a, y, part_b, kind)
                proposed[x, part_a, y, part_b] = equal, f"beside {link.a} and {link.b}"
    once_a = Counter(each[:2] for each in proposed)
    once_b = Counter(each[2:] for each in proposed)
    return [new for each, new in proposed.items() if once_a[each[:2]] == once_b[each[2:]] == 1]


class _Beside:
    """The free stretches of one side, by the leaves beside them."""

    def __init__(self, leaves: Leaves, taken: list[tuple[str, Slices | None]]) -> None:
        self._leaves = leaves
        self._taken: dict[str, list[Slices | None]] = defaultdict(list)
        for name, part in taken:
            self._taken[name].append(part)
        self._by_parent: dict[str, list[str]] = defaultdict(list)
        for name in leaves.prints:
            parts = self._taken.get(name)
            if (leaves.constant(name) if parts is None else None not in parts) and (
                above := _parent(name)
            ):
                self._by_parent[above].append(name)

    def stretches(self, name: str, part: Slices | None) -> list[tuple[str, Slices | None, int, float]]:
        """Return the free leaves beside a leaf (for a part of it, the same share of each) that hold one
        value, each with size and value."""
        stretches = []
        for beside in self._by_parent.get(_parent(name), ()):
            shape = self._leaves.shapes[beside]
            own = _part_of(part, self._leaves.shapes[name], shape) if part else None
            if beside == name or (part and own is None) or self._is_taken(beside, own):
                continue
            array = self._leaves.load(beside)
            array = own.take(array) if own else array
            first = array.reshape(-1)[:1]
            if first.size and (array == first).all():
                with np.errstate(all="ignore"):  # in the coarsest type, which the other side may have
                    coarse = np.complex64 if first.dtype.kind == "c" else ml_dtypes.bfloat16
                    value = first.astype(coarse)[0].item()
                stretches.append((beside, own, array.size, value))
        return stretches

    def _is_taken(self, name: str, part: Slices | None) -> bool:
        parts = self._taken.get(name, [])
        if part is None:
            return bool(parts)
        return any(
            other is None
            or other.axis != part.axis
            or (other.start < part.stop and part.start < other.stop)
            for other in parts
        )


def _alone(a: Leaves, b: Leaves, links: list[Equal]) -> Iterable[tuple[Equal, str]]:
    """Find a leaf that alone has its values, or its values and name, in modules that correspond."""
    for (_, address), (ours, theirs) in _classes(a, b, links).items():
        short = {name.removeprefix(address[1]): name for name in theirs}
        for x in ours if len(ours) > 1 else ():
            y = short.get(x.removeprefix(address[0]))
            kind = common_type(a.types[x], b.types[y]) if y else None
            if y and kind is not None:
                yield Equal(x, None, y, None, kind), "of the same name, and the values agree"
                return
        if len(ours) == len(theirs) == 1:
            kind = common_type(a.types[ours[0]], b.types[theirs[0]])
            if kind is not None:
                where = " and ".join(address) if any(address) else "the model"
                yield Equal(ours[0], None, theirs[0], None, kind), f"the only one so in {where}"
                return  # this partner may settle others in inner modules


def _candidates(
    a: Leaves, b: Leaves, links: list[Equal]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the leaves of both sides with several candidates: those in corresponding modules, or
    anywhere if these have none."""
    ours: dict[str, tuple[str, ...]] = {}
    theirs: dict[str, tuple[str, ...]] = {}
    for classes in (_classes(a, b, links), _classes(a, b, links, everywhere=True)):
        for x, y in classes.values():
            if not (x and y):
                continue
            ours |= {name: tuple(y) for name in x if name not in ours}
            theirs |= {name: tuple(x) for name in y if name not in theirs}
    return ours, theirs


def _classes(
    a: Leaves, b: Leaves, links: list[Equal], *, everywhere: bool = False
) -> dict[tuple[Key, tuple[str, str]], tuple[list[str], list[str]]]:
    """Group the open leaves of both sides by values and innermost pair of corresponding modules."""
    pairs = {} if everywhere else _pairs(links)
    back = {theirs: ours for ours, theirs in pairs.items()}
    classes: dict[tuple[Key, tuple[str, str]], tuple[list[str], list[str]]] = {}
    for side, leaves in enumerate((a, b)):
        taken = [link.b if side else link.a for link in links]
        held = keys(leaves)
        for name in _open(leaves, taken):
            module = next((m for m in modules_above(name)[::-1] if m in (back if side else pairs)), "")
            other = (back if side else pairs).get(module, "")
            address = (other, module) if side else (module, other)
            for key in held.get(name, ()):
                classes.setdefault((key, address), ([], []))[side].append(name)
    return classes


def _pairs(links: list[Equal]) -> dict[str, str]:
    """Return the modules of A that hold the same leaves as a module of B, each with that module."""
    there = _innermost((link.a, link.b) for link in links)
    back = _innermost((link.b, link.a) for link in links)
    return {ours: theirs for ours, theirs in there.items() if theirs and back.get(theirs) == ours}


def _innermost(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return for each module the innermost one that contains the partners of all its leaves."""
    containers: dict[str, list[str]] = {}
    for name, partner in pairs:
        above = modules_above(partner)
        for module in modules_above(name):
            common = containers.setdefault(module, above)
            containers[module] = [x for x, y in zip(common, above, strict=False) if x == y]
    return {module: common[-1] if common else "" for module, common in containers.items()}


def _open(leaves: Leaves, taken: Iterable[str]) -> list[str]:
    done = set(taken)
    return [name for name in leaves.prints if name not in done]


def _parent(name: str) -> str:
    return next(iter(modules_above(name)[::-1]), "")


def _part_of(part: Slices, shape: tuple[int, ...], own: tuple[int, ...]) -> Slices | None:
    """Return the same stretch of a neighbour: along an axis of the same length, or the first axis that
    can be divided alike; None if there is none."""
    if part.axis < len(own) and own[part.axis] == shape[part.axis]:
        return part
    for axis, length in enumerate(own):
        if length == shape[part.axis]:
            return part._replace(axis=axis)
    times, rest = divmod(part.every, part.stop - part.start)
    axis = next((i for i, length in enumerate(own) if length % times == 0), None)
    if rest or part.every != shape[part.axis] or part.start % (part.stop - part.start) or axis is None:
        return None
    width = own[axis] // times
    first = part.start // (part.stop - part.start) * width
    return Slices(axis, first, first + width, own[axis])
