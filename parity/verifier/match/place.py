"""By place: leaves whose numbers say nothing, such as fresh biases, told by the leaves around them.

Nothing is guessed: a leaf is given a partner only where its modules leave exactly one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from parity.verifier.match.fingerprint import common_type
from parity.verifier.match.leaves import Leaves, modules_above
from parity.verifier.match.links import Part
from parity.verifier.match.search import Found, Key, keys


class Placed(NamedTuple):
    """What was found by place, and what remains open."""

    found: list[tuple[Found, str]]
    """With what each rests on."""
    ambiguous: dict[str, tuple[str, ...]]
    ambiguous_b: dict[str, tuple[str, ...]]


def place(a: Leaves, b: Leaves, known: list[Found]) -> Placed:
    """Partners of leaves that their modules leave no choice of."""
    found: list[tuple[Found, str]] = []
    while True:
        links = [*known, *(each for each, _ in found)]
        new = _beside(a, b, links) or [*_alone(a, b, links)]
        if not new:
            break
        found += new
    ambiguous, ambiguous_b = _candidates(a, b, links)
    return Placed(found, ambiguous, ambiguous_b)


def _beside(a: Leaves, b: Leaves, links: list[Found]) -> list[tuple[Found, str]]:
    """A leaf beside one that is known: the bias of a weight that was joined, split or stacked."""
    ours = _Beside(a, [(x.a, x.part_a) for x in links])
    theirs = _Beside(b, [(x.b, x.part_b) for x in links])
    proposed: dict[tuple[str, Part | None, str, Part | None], tuple[Found, str]] = {}
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
                found = Found(x, part_a, y, part_b, kind)
                proposed[x, part_a, y, part_b] = found, f"beside {link.a} and {link.b}"
    once_a = Counter(each[:2] for each in proposed)
    once_b = Counter(each[2:] for each in proposed)
    return [new for each, new in proposed.items() if once_a[each[:2]] == once_b[each[2:]] == 1]


class _Beside:
    """The stretches of one side that are not taken, by the leaves that they are beside."""

    def __init__(self, leaves: Leaves, taken: list[tuple[str, Part | None]]) -> None:
        self._leaves = leaves
        self._taken: dict[str, list[Part | None]] = defaultdict(list)
        for name, part in taken:
            self._taken[name].append(part)
        self._by_parent: dict[str, list[str]] = defaultdict(list)
        for name in leaves.prints:
            parts = self._taken.get(name)
            if (leaves.constant(name) if parts is None else None not in parts) and (
                above := _parent(name)
            ):
                self._by_parent[above].append(name)

    def stretches(self, name: str, part: Part | None) -> list[tuple[str, Part | None, int, float]]:
        """The leaves beside one, or the same share of them as a part is of it, if that holds one value:
        with its size and the value."""
        found = []
        for beside in self._by_parent.get(_parent(name), ()):
            shape = self._leaves.shapes[beside]
            own = _part_of(part, self._leaves.shapes[name], shape) if part else None
            if beside == name or (part and own is None) or self._is_taken(beside, own):
                continue
            array = self._leaves.load(beside)
            array = own.take(array) if own else array
            first = array.reshape(-1)[:1]
            if first.size and (array == first).all():
                with np.errstate(all="ignore"):  # in the coarsest type: the other side's may be that
                    value = float(first.astype(ml_dtypes.bfloat16)[0])
                found.append((beside, own, array.size, value))
        return found

    def _is_taken(self, name: str, part: Part | None) -> bool:
        parts = self._taken.get(name, [])
        if part is None:
            return bool(parts)
        return any(
            other is None
            or other.axis != part.axis
            or (other.start < part.stop and part.start < other.stop)
            for other in parts
        )


def _alone(a: Leaves, b: Leaves, links: list[Found]) -> Iterable[tuple[Found, str]]:
    """A leaf that is the only one with its values, or with its name too, in modules that correspond."""
    for (_, address), (ours, theirs) in _classes(a, b, links).items():
        short = {name.removeprefix(address[1]): name for name in theirs}
        for x in ours if len(ours) > 1 else ():
            y = short.get(x.removeprefix(address[0]))
            kind = common_type(a.types[x], b.types[y]) if y else None
            if y and kind is not None:
                yield Found(x, None, y, None, kind), "of the same name, and the values agree"
                return
        if len(ours) == len(theirs) == 1:
            kind = common_type(a.types[ours[0]], b.types[theirs[0]])
            if kind is not None:
                where = " and ".join(address) if any(address) else "the model"
                yield Found(ours[0], None, theirs[0], None, kind), f"the only one so in {where}"
                return  # what is known now may settle others in a closer place


def _candidates(
    a: Leaves, b: Leaves, links: list[Found]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Leaves that several others may be, with those: in the same modules, or anywhere if there are
    none."""
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
    a: Leaves, b: Leaves, links: list[Found], *, everywhere: bool = False
) -> dict[tuple[Key, tuple[str, str]], tuple[list[str], list[str]]]:
    """Open leaves of both sides by values and by the innermost pair of corresponding modules around."""
    pairs = {} if everywhere else _pairs(links)
    back = {theirs: ours for ours, theirs in pairs.items()}
    found: dict[tuple[Key, tuple[str, str]], tuple[list[str], list[str]]] = {}
    for side, leaves, others in ((0, a, b), (1, b, a)):
        taken = [link.b if side else link.a for link in links]
        held = keys(leaves, others)
        for name in _open(leaves, taken):
            module = next((m for m in modules_above(name)[::-1] if m in (back if side else pairs)), "")
            other = (back if side else pairs).get(module, "")
            address = (other, module) if side else (module, other)
            for key in held.get(name, ()):
                found.setdefault((key, address), ([], []))[side].append(name)
    return found


def _pairs(links: list[Found]) -> dict[str, str]:
    """Modules of A that hold the same leaves as one module of B, with those."""
    there = _innermost((link.a, link.b) for link in links)
    back = _innermost((link.b, link.a) for link in links)
    return {ours: theirs for ours, theirs in there.items() if theirs and back.get(theirs) == ours}


def _innermost(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of each module the innermost one around the partners of all its leaves."""
    found: dict[str, list[str]] = {}
    for name, partner in pairs:
        above = modules_above(partner)
        for module in modules_above(name):
            common = found.setdefault(module, above)
            found[module] = [x for x, y in zip(common, above, strict=False) if x == y]
    return {module: common[-1] if common else "" for module, common in found.items()}


def _open(leaves: Leaves, taken: Iterable[str]) -> list[str]:
    done = set(taken)
    return [name for name in leaves.prints if name not in done]


def _parent(name: str) -> str:
    return next(iter(modules_above(name)[::-1]), "")


def _part_of(part: Part, shape: tuple[int, ...], own: tuple[int, ...]) -> Part | None:
    """The same stretch of a neighbour: along its axis of the same length, or the first that divides
    so."""
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
    return Part(axis, first, first + width, own[axis])
