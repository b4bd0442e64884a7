"""Matching of leaves by value, then by place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import ml_dtypes
import numpy as np

from parity.porting.formats.base import Stored
from parity.verifier.match.arrange import arrange
from parity.verifier.match.fingerprint import common_type
from parity.verifier.match.leaves import Leaves
from parity.verifier.match.links import Grade, Link, Matched, Slices, Sum
from parity.verifier.match.place import place
from parity.verifier.match.search import Equal, search
from vit_config.waiting import Plan, Stage, nobody

COMPARING = "comparing what is equal"


def match(
    a: Mapping[str, Stored | np.ndarray],
    b: Mapping[str, Stored | np.ndarray],
    *,
    on_stage: Stage = nobody,
) -> Matched:
    """Find which leaf of A is which leaf of B, whatever they are called.

    Args:
        a: arrays of any shapes and types, by name.
        b: the arrays of another program, by name.
        on_stage: called with each stage as it begins.

    Raises:
        WeightsError: the bytes of a tensor are damaged.
    """
    ours, theirs = Leaves(a), Leaves(b)
    sides = {"A": ours, "B": theirs}
    reading = {
        f"reading {name} of {side}": each.size(name)
        for side, each in sides.items()
        for name in each.types
    }
    plan = Plan(on_stage, reading | {COMPARING: sum(reading.values()) / 2})
    ours.read(theirs.types.values(), lambda name: plan.begin(f"reading {name} of A"))
    theirs.read(ours.types.values(), lambda name: plan.begin(f"reading {name} of B"))
    plan.begin(COMPARING)
    equals = search(ours, theirs)
    placed = place(ours, theirs, equals)
    graded: list[tuple[Equal, Grade, str]] = [(each, "by value", "") for each in equals]
    for each, why in placed.partners:
        graded.append((each, "by place", why))
    # links to one leaf of B stay together, so that it is read once
    links = [_link(ours, theirs, *each) for each in sorted(graded, key=lambda each: each[0].b)]
    order = {name: index for index, name in enumerate(ours.shapes)}
    links.sort(key=lambda link: (order[link.a], link.part_a is not None and link.part_a.start, link.b))
    matched = Matched(
        a=ours.shapes,
        b=theirs.shapes,
        types_a=ours.types,
        types_b=theirs.types,
        links=tuple(links),
        ambiguous=placed.ambiguous,
        ambiguous_b=placed.ambiguous_b,
        filled_a=_filled(ours, [(link.a, link.part_a) for link in links]),
        filled_b=_filled(theirs, [(link.b, link.part_b) for link in links]),
    )
    return replace(matched, sums=_sums(ours, theirs, matched))


def _sums(a: Leaves, b: Leaves, matched: Matched) -> tuple[Sum, ...]:
    rest_a, rest_b = matched.rest("a"), matched.rest("b")
    part_a = [name for name in rest_a if any(link.a == name for link in matched.links)]
    part_b = [name for name in rest_b if any(link.b == name for link in matched.links)]
    return (
        *_sums_of("b", b, rest_b, a, rest_a, part_a),
        *_sums_of("a", a, rest_a, b, rest_b, part_b),
    )


def _sums_of(
    side: Literal["a", "b"],
    one: Leaves,
    rest: Sequence[str],
    other: Leaves,
    terms: Sequence[str],
    tables: Sequence[str],
) -> list[Sum]:
    """Find left-over leaves of one side that are a left-over leaf plus a row of a table of the other: a
    class token with its row of the position table added.

    Args:
        side: the side that `one` is.
        rest: the left-over leaves of `one`.
        terms: the left-over leaves of `other`.
        tables: those of `terms` that are partly matched, as the other rows of a position table are.
    """
    results = []
    for name in rest:
        size = one.size(name)
        wide = [t for t in tables if other.shapes[t][-1] == size < other.size(t)]
        for term in (t for t in terms if other.size(t) == size > 1):
            rows = [(t, row) for t in wide for row in _rows(one, name, other, term, t)]
            if len(rows) == 1:
                results.append(Sum(side, name, term, *rows[0]))
                break
    return results


def _rows(one: Leaves, name: str, other: Leaves, term: str, table: str) -> Iterable[int]:
    """Return the rows of a table that, added to a leaf, make another leaf, up to rounding of the sum."""
    kind = common_type(one.types[name], other.types[table])
    if kind is None or kind.kind in "iub":
        return ()
    total, first = (each.astype(np.float64).reshape(-1) for each in (one.load(name), other.load(term)))
    rows = other.load(table).astype(np.float64).reshape(-1, len(total))
    limit = 2 * float(ml_dtypes.finfo(kind).eps) * np.maximum(np.abs(rows), np.abs(first))
    return np.flatnonzero((np.abs(rows + first - total) <= limit).all(axis=1)).tolist()


def _link(a: Leaves, b: Leaves, equal: Equal, grade: Grade, why: str) -> Link:
    left, right = a.load(equal.a), b.load(equal.b)
    left = equal.part_a.take(left) if equal.part_a else left
    right = equal.part_b.take(right) if equal.part_b else right
    arrangement = arrange(left, right, equal.kind, equal.a)
    return Link(equal.a, equal.part_a, equal.b, equal.part_b, equal.kind, arrangement, grade, why)


def _filled(
    leaves: Leaves, taken: list[tuple[str, Slices | None]]
) -> dict[str, tuple[tuple[Slices, float], ...]]:
    """Return the unmatched stretches of partly matched leaves, if each holds one value throughout."""
    filled: dict[str, tuple[tuple[Slices, float], ...]] = {}
    parts: dict[str, list[Slices]] = {}
    for name, part in taken:
        if part is not None:
            parts.setdefault(name, []).append(part)
    for name, own in parts.items():
        if leaves.types[name].kind == "c":  # a fill is one real number
            continue
        axis, length = own[0].axis, leaves.shapes[name][own[0].axis]
        size = sum(math.prod(part.shape(leaves.shapes[name])) for part in own)
        if size == leaves.size(name) or any(p.axis != axis or p.every != length for p in own):
            continue
        ends = sorted((part.start, part.stop) for part in own)
        gaps = zip(
            [0, *(stop for _, stop in ends)], [*(start for start, _ in ends), length], strict=True
        )
        stretches = [Slices(axis, start, stop, length) for start, stop in gaps if start < stop]
        values = [each.take(leaves.load(name)) for each in stretches]
        if all((each == each.reshape(-1)[0]).all() for each in values):
            firsts = [float(each.reshape(-1)[0]) for each in values]
            filled[name] = tuple(zip(stretches, firsts, strict=True))
    return filled
