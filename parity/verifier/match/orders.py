"""Search for the order of slices: heads permuted, queries, keys and values interleaved, halves as
pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, permutations

import numpy as np

from parity.verifier.match.links import SliceOrder

MOST_FACTORS = 3
MOST_SHOWN = 8
"""Most heads whose order is printed."""


def find_order(ours: np.ndarray, theirs: np.ndarray, axis: int) -> SliceOrder | None:
    """Find the order in which A has the slices of B.

    Args:
        ours: the fingerprint of each slice of A, (n,).
        theirs: the same fingerprints in B's order, (n,).
        axis: the axis of the slices.
    """
    if order := _known(ours, theirs):
        return SliceOrder(axis, *order)
    thirds = _thirds(ours, theirs)
    return SliceOrder(axis, *(thirds or _any(ours, theirs)))


def _known(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Find an order by dividing the axis into factors and permuting these."""
    for count in range(2, MOST_FACTORS + 1):
        for factors in _factorings(len(ours), count):
            for order in _moves(count):
                indices = np.arange(len(ours)).reshape(factors).transpose(order).reshape(-1)
                if np.array_equal(theirs[indices], ours):
                    return indices, _words(factors, order)
    return None


def _thirds(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Find an order for each of queries, keys and values, the thirds of the axis."""
    third, rest = divmod(len(ours), 3)
    if rest:
        return None
    orders, notes = [], []
    for number, name in enumerate(("queries", "keys", "values")):
        a, b = (each[number * third : (number + 1) * third] for each in (ours, theirs))
        if np.array_equal(a, b):
            one = np.arange(third), ""
        elif not np.array_equal(np.sort(a), np.sort(b)):
            return None
        else:
            one = _known(a, b) or _any(a, b)
        orders.append(one[0] + number * third)
        notes += [f"{name}: {one[1]}"] if one[1] else []
    return np.concatenate(orders), "; ".join(notes)


def _any(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, str]:
    """Describe any order by the largest blocks that stay together; equal slices keep their order."""
    places = np.argsort(theirs, kind="stable")
    indices = np.empty(len(ours), np.int64)
    indices[np.argsort(ours, kind="stable")] = places
    for size in (n for n in range(len(ours) // 2, 1, -1) if len(ours) % n == 0):
        blocks = indices.reshape(-1, size)
        starts = blocks[:, 0] // size
        if np.array_equal(blocks, starts[:, None] * size + np.arange(size)):
            shown = ", ".join(map(str, starts[:MOST_SHOWN])) + (
                ", ..." if len(starts) > MOST_SHOWN else ""
            )
            return indices, f"{len(starts)} heads of {size} in the order {shown}"
    return indices, "slices in another order"


def _words(factors: Sequence[int], order: Sequence[int]) -> str:
    theirs = ", ".join(map(str, factors))
    ours = ", ".join(str(factors[i]) for i in order)
    what = ""
    if tuple(order) == (1, 0, 2) and 3 in factors[:2]:
        what = "queries, keys and values interleaved by head: "
    elif tuple(order)[-2:] == (len(factors) - 1, len(factors) - 2) and 2 in factors[-2:]:
        what = "rotary pairs to halves: " if factors[-1] == 2 else "rotary halves to pairs: "
    return f"{what}({theirs}) read as ({ours})"


@cache
def _moves(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the permutations in which no neighbours stay together; fewer factors describe the rest."""
    return tuple(
        order
        for order in permutations(range(count))
        if all(after != before + 1 for before, after in pairwise(order))
    )


@cache
def _factorings(length: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return all ways to write a length as a product of `count` factors above one, in order."""
    return tuple(_products(length, count))


def _products(length: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        if length > 1:
            yield (length,)
        return
    for first in range(2, length // 2 + 1):
        if length % first == 0:
            for rest in _products(length // first, count - 1):
                yield (first, *rest)
