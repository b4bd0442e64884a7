"""Matching by value: search for parts of two sets of leaves that hold the same numbers.

Four passes over fingerprints, the plainest relation first: whole leaves; a leaf that is a stretch of
another; a leaf that is spread evenly through another; slices of a stack that are stretches of others.
Parts that are found several times are left for `parity.verifier.match.place`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parity.verifier.match.fingerprint import Fingerprint, common_type, windows
from parity.verifier.match.leaves import Leaves
from parity.verifier.match.links import Slices

LEAST = 4
"""Least size of a part that is searched in other leaves; two or three numbers may agree by chance."""
MOST_SLICES = 256
"""Longest axis along which a leaf may be a stack of others: blocks, or heads."""


class Equal(NamedTuple):
    """Two parts that hold the same numbers; None is the whole leaf."""

    a: str
    part_a: Slices | None
    b: str
    part_b: Slices | None
    kind: np.dtype

    def turned(self) -> Equal:
        """Return the same, seen from the other side."""
        return Equal(self.b, self.part_b, self.a, self.part_a, self.kind)


Key = tuple[np.dtype, int, int]
"""Type, size and fingerprint: leaves with an equal key hold the same numbers."""


def search(a: Leaves, b: Leaves) -> list[Equal]:
    """Find the parts of two sets of leaves that hold the same numbers and are found only once."""
    equals, repeated = _wholes(a, b)
    for step in (_whole_in_stretch, _spread, _slices_in_stretches):
        for turned in (False, True):
            one, other = (b, a) if turned else (a, b)
            taken = [each.turned() if turned else each for each in equals]
            names = _open(one, repeated[turned].union(x.a for x in taken))
            places = _open(other, repeated[not turned].union(x.b for x in taken if x.part_b is None))
            new = step(one, other, names, places)
            equals += [each.turned() if turned else each for each in new]
    return equals


def keys(leaves: Leaves) -> dict[str, set[Key]]:
    """Return the keys of each leaf, one for each type of its fingerprints."""
    return {
        name: {(kind, leaves.size(name), each.total) for kind, each in prints.items()}
        for name, prints in leaves.prints.items()
    }


def _wholes(a: Leaves, b: Leaves) -> tuple[list[Equal], tuple[set[str], set[str]]]:
    """Find the leaves that equal one leaf of the other side; also return those of each side with several
    candidates, or with only one value."""
    by_key: dict[Key, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, leaves in enumerate((a, b)):
        for name, each in keys(leaves).items():
            for key in each:
                by_key[key][side].append(name)
    wholes = []
    repeated: tuple[set[str], set[str]] = (set(), set())
    for (kind, _, _), (ours, theirs) in by_key.items():
        pairs = [(x, y) for x in ours for y in theirs if common_type(a.types[x], b.types[y]) == kind]
        if len(pairs) == 1 and len(ours) == len(theirs) == 1 and not a.constant(ours[0]):
            wholes.append(Equal(ours[0], None, theirs[0], None, kind))
        elif pairs:
            repeated[0].update(ours)
            repeated[1].update(theirs)
    return wholes, repeated


def _open(leaves: Leaves, taken: set[str]) -> list[str]:
    """Return the leaves that are neither taken nor constant."""
    return [n for n in leaves.prints if n not in taken and not leaves.constant(n)]


def _whole_in_stretch(one: Leaves, other: Leaves, names: list[str], places: list[str]) -> list[Equal]:
    """Find whole leaves of one side that are a stretch of a leaf of the other: split, or joined."""
    wanted: dict[Key, list[tuple[str, Slices | None]]] = defaultdict(list)
    for name in names:
        for kind, each in one.prints[name].items() if _telling(one, name) else ():
            wanted[kind, one.size(name), each.total].append((name, None))
    return _look_up(one, other, wanted, places, whole=False)


def _slices_in_stretches(one: Leaves, other: Leaves, names: list[str], places: list[str]) -> list[Equal]:
    """Find slices of a stack that are a leaf of the other side, or a stretch of one."""
    best: dict[str, list[Equal]] = {}
    wanted: dict[int, dict[Key, list[tuple[str, Slices | None]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name in names:
        for axis, length in enumerate(one.shapes[name]):
            if not 1 < length <= MOST_SLICES or not _telling(one, name, length):
                continue
            for kind, each in one.prints[name].items():
                for i, total in enumerate(each.sums[axis]):
                    part = Slices(axis, i, i + 1, length)
                    wanted[axis][kind, one.size(name) // length, int(total)].append((name, part))
    for axis in sorted(wanted):
        by_leaf: dict[str, list[Equal]] = defaultdict(list)
        for each in _look_up(one, other, wanted[axis], places, whole=True):
            by_leaf[each.a].append(each)
        for name, each in by_leaf.items():
            if len(each) / one.shapes[name][axis] > _share(best.get(name), one.shapes[name]):
                best[name] = each
    return [equal for each in best.values() for equal in each]


def _telling(leaves: Leaves, name: str, parts: int = 1) -> bool:
    """Return whether parts of a leaf are large enough to be told by their numbers; integers never are,
    as they are the same in many leaves."""
    return leaves.types[name].kind not in "iub" and leaves.size(name) >= LEAST * parts


def _share(equals: list[Equal] | None, shape: tuple[int, ...]) -> float:
    part = equals[0].part_a if equals else None
    return len(equals) / shape[part.axis] if equals and part else 0.0


def _look_up(
    one: Leaves,
    other: Leaves,
    wanted: dict[Key, list[tuple[str, Slices | None]]],
    places: list[str],
    *,
    whole: bool,
) -> list[Equal]:
    """Find the wanted fingerprints among the stretches of leaves, if wanted once and found once."""
    by_size: dict[tuple[np.dtype, int], dict[int, tuple[str, Slices | None]]] = defaultdict(dict)
    for (kind, size, total), units in wanted.items():
        if len(units) == 1:
            by_size[kind, size][total] = units[0]
    totals = {key: np.fromiter(each, np.uint64, len(each)) for key, each in by_size.items()}
    hits: list[Equal] = []
    for place in places:
        for kind, each in other.prints[place].items():
            for start, size, total, part in _stretches(other, place, each, kind, totals, whole):
                name, unit = by_size[kind, size][total]
                if common_type(one.types[name], other.types[place]) == kind:
                    hits.append(Equal(name, unit, place, part if start >= 0 else None, kind))
    counts = Counter((hit.a, hit.part_a) for hit in hits)
    return [hit for hit in hits if counts[hit.a, hit.part_a] == 1]


def _stretches(
    leaves: Leaves,
    name: str,
    prints: Fingerprint,
    kind: np.dtype,
    totals: dict[tuple[np.dtype, int], np.ndarray],
    whole: bool,
) -> Iterator[tuple[int, int, int, Slices | None]]:
    """Yield the stretches of a leaf that have a wanted fingerprint."""
    for of, size in totals:
        if of != kind:
            continue
        if whole and size == leaves.size(name) and np.uint64(prints.total) in totals[of, size]:
            yield -1, size, prints.total, None
        for axis, length in enumerate(leaves.shapes[name]):
            slices, rest = divmod(size * length, leaves.size(name))
            if rest or not 0 < slices < length:
                continue
            sums = windows(prints.sums[axis], slices)
            for start in np.flatnonzero(np.isin(sums, totals[of, size])):
                part = Slices(axis, int(start), int(start) + slices, length)
                yield int(start), size, int(sums[start]), part


def _spread(one: Leaves, other: Leaves, names: list[str], places: list[str]) -> list[Equal]:
    """Find leaves whose slices are spread evenly through a leaf of the other side, as in (h, 3, d)."""
    hits = []
    for name in names:
        for place in places:
            kind = common_type(one.types[name], other.types[place])
            if kind is None or one.size(name) >= other.size(place) or not _telling(one, name):
                continue
            small, large = one.prints[name][kind], other.prints[place][kind]
            parts = (
                part
                for axis, mine in enumerate(small.sums)
                for across, theirs in enumerate(large.sums)
                if one.size(name) * len(theirs) == other.size(place) * len(mine)
                for part in _spread_along(mine, theirs, across)
            )
            if part := next(parts, None):
                hits.append(Equal(name, None, place, part, kind))
    counts = Counter(hit.a for hit in hits)
    return [hit for hit in hits if counts[hit.a] == 1]


def _spread_along(mine: np.ndarray, theirs: np.ndarray, axis: int) -> Iterator[Slices]:
    times, rest = divmod(len(theirs), len(mine))
    if rest or times < 2:
        return
    for first in np.flatnonzero(theirs == mine[0]):
        for width in range(1, len(mine) // 2 + 1):
            if len(mine) % width or first % width or first >= times * width:
                continue
            part = Slices(0, int(first), int(first) + width, times * width)
            if np.array_equal(part.take(theirs), mine):
                yield part._replace(axis=axis)
