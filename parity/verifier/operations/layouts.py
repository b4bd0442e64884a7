"""The ways in which an array of one program can be an array of the other: axes moved, merged, split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np

MOST_WAYS = 24


def arrangements(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """A value in another shape, in every way that keeps its axes whole; the plainest first.

    Same shape: as it is, then with axes exchanged. Axes of one that are merged in the other are split
    as there. Axes of length one come and go.
    """
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    count = 0
    if value.shape == shape:
        yield value
        seen.add((tuple(range(value.ndim)), value.shape))
    if value.size != math.prod(shape):
        yield from _broadcast(value, shape)
        return
    if value.ndim and value.size == value.shape[0] and len(shape) == 1:
        yield value.reshape(shape)
        return
    for finer in _finer(value.shape, shape):
        split = value.reshape(finer)
        axes = [i for i, n in enumerate(finer) if n != 1]
        for order in sorted(permutations(axes), key=_disorder):
            if not _merges([finer[i] for i in order], shape):
                continue
            key = (order, finer)
            if key in seen:
                continue
            seen.add(key)
            rest = [i for i in range(len(finer)) if i not in order]
            yield split.transpose([*rest, *order]).reshape(shape)
            count += 1
            if count >= MOST_WAYS:
                return


def _broadcast(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """A smaller value repeated, with its axes where they fit."""
    total = math.prod(shape)
    if not value.size or total % value.size or total == value.size:
        return
    try:
        yield np.broadcast_to(value, shape)
        return
    except ValueError:
        pass
    dims = [n for n in value.shape if n != 1]
    places = [i for i, n in enumerate(shape) if n in dims]
    for chosen in permutations(places, len(dims)):
        if all(shape[i] == n for i, n in zip(chosen, dims, strict=True)):
            order = np.argsort(chosen)
            full = [1] * len(shape)
            for i, n in zip(chosen, dims, strict=True):
                full[i] = n
            yield np.broadcast_to(value.reshape(dims).transpose(order).reshape(full), shape)
            return


def _disorder(order: tuple[int, ...]) -> int:
    return sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])


def _merges(sizes: list[int], shape: tuple[int, ...]) -> bool:
    """Whether consecutive sizes multiply to the axes of a shape."""
    position = 0
    for wanted in (n for n in shape if n != 1):
        product = 1
        while product < wanted and position < len(sizes):
            product *= sizes[position]
            position += 1
        if product != wanted:
            return False
    return position == len(sizes)


def _finer(a: tuple[int, ...], b: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """`a`, then `a` with one axis split into axes of `b`."""
    if len(a) <= 6:
        yield a
    inner = [n for n in b if n != 1]
    for axis, size in enumerate(a):
        for count in range(2, min(len(inner), 4) + 1):
            for parts in dict.fromkeys(permutations(inner, count)):
                if math.prod(parts) == size and len(a) + count - 1 <= 6:
                    yield (*a[:axis], *parts, *a[axis + 1 :])
