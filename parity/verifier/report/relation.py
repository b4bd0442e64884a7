"""How an array lies to another one: the same, axes exchanged, reversed, shifted, in other order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.layouts import layout_changes, long_axes

SAME = "same"
DIFFERS = "differs"
OTHER_ORDER = "other order"
REPEATED = "same numbers, repeated"
LARGEST = 1 << 20
"""Most numbers of an array whose orders are tried."""
LONGEST = 64
"""Longest axis along which shifts are tried."""


def relation(a: np.ndarray, b: np.ndarray) -> str:
    """Say how B's array lies to A's.

    Axes of unequal length are exchanged by convention: "same numbers, axes in the order [0, 2, 1]". Axes
    of equal length may be so by mistake: "axes exchanged (0 and 1)".
    """
    if a.size != b.size:
        return REPEATED if any(_is(each, b) for each in _layouts(a, b.shape)) else DIFFERS
    if _is(a.reshape(b.shape), b):
        return SAME
    if a.size > LARGEST:
        return OTHER_ORDER if _has_its_numbers(a, b) else DIFFERS
    if not _has_its_numbers(a, b):
        return DIFFERS
    if long_axes(a.shape) == long_axes(b.shape):
        found = next(_within(a.reshape(b.shape), b), "")
        if found:
            return found
    for change in layout_changes(a.shape, b.shape):
        if _is(change.of(a), b):
            of = "" if change.split == a.shape else f" of {list(change.split)}"
            return f"same numbers, axes in the order {list(change.axes)}{of}"
    return OTHER_ORDER


def is_usual(words: str) -> bool:
    """Return whether a relation is that of a value that B reads as A does, in any layout."""
    return words == SAME or words.startswith("same numbers")


def _within(a: np.ndarray, b: np.ndarray) -> Iterator[str]:
    """Yield the relations of two arrays of one shape."""
    axes = [axis for axis, n in enumerate(b.shape) if n > 1]
    for i, j in combinations(axes, 2):
        if b.shape[i] == b.shape[j] and _is(a.swapaxes(i, j), b):
            yield f"axes exchanged ({i} and {j})"
    for axis in axes:
        if _is(np.flip(a, axis), b):
            yield f"reversed (axis {axis})"
    for axis in axes:
        if b.shape[axis] <= LONGEST:
            for by in range(1, b.shape[axis]):
                if _is(np.roll(a, by, axis), b):
                    short = by if 2 * by <= b.shape[axis] else by - b.shape[axis]
                    yield f"shifted (by {short} along axis {axis})"
    for i, j in combinations(axes, 2):
        if _is(np.flip(a, (i, j)), b):
            yield f"reversed (axes {i} and {j})"


def _layouts(a: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    return (change.of(a) for change in layout_changes(a.shape, shape))


def _is(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays of one shape are equal up to rounding."""
    return distance(one, other) <= FARTHEST.norm


def _has_its_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    if "c" in a.dtype.kind + b.dtype.kind:
        return bool(np.allclose(np.sort(np.abs(a), axis=None), np.sort(np.abs(b), axis=None)))
    return distance(np.sort(a, axis=None), np.sort(b, axis=None)) <= FARTHEST.norm
