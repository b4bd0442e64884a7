"""Changes of layout between arrays of two programs: axes moved, merged, split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

MOST_CHANGES = 24


@dataclass(frozen=True)
class LayoutChange:
    """One change of layout: an array is split, transposed, merged and repeated."""

    split: tuple[int, ...]
    """Shape into which the array is split, so that its axes can be exchanged."""
    axes: tuple[int, ...]
    """Axes of the split shape, in their new order."""
    merged: tuple[int, ...]
    """Shape into which the exchanged axes are merged."""
    shape: tuple[int, ...]
    """Shape to which the merged array is repeated."""

    def of(self, value: np.ndarray) -> np.ndarray:
        """Return a value in the other layout."""
        moved = value.reshape(self.split).transpose(self.axes).reshape(self.merged)
        return moved if self.merged == self.shape else np.broadcast_to(moved, self.shape)


def long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lengths of the axes that are longer than one."""
    return tuple(n for n in shape if n != 1)


def arrangements(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield a value in another shape, in every way that keeps its axes whole; the plainest first."""
    return (change.of(value) for change in layout_changes(value.shape, shape))


def layout_changes(given: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[LayoutChange]:
    """Yield the changes of layout between two shapes that keep axes whole; the plainest first.

    Between equal shapes: none, then axes exchanged. Axes that are merged in the given shape are split
    as in the other. Axes of length one come and go.
    """
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    count = 0
    plain = tuple(range(len(given)))
    if given == shape:
        yield LayoutChange(given, plain, shape, shape)
        seen.add((plain, given))
    size = math.prod(given)
    if size != math.prod(shape):
        yield from _broadcast(given, shape)
        return
    if given and size == given[0] and len(shape) == 1:
        yield LayoutChange(given, plain, shape, shape)
        return
    for finer in _finer(given, shape):
        axes = [i for i, n in enumerate(finer) if n != 1]
        for order in sorted(permutations(axes), key=_disorder):
            if not _merges([finer[i] for i in order], shape):
                continue
            key = (order, finer)
            if key in seen:
                continue
            seen.add(key)
            rest = [i for i in range(len(finer)) if i not in order]
            yield LayoutChange(finer, (*rest, *order), shape, shape)
            count += 1
            if count >= MOST_CHANGES:
                return


def conventional(given: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[LayoutChange]:
    """Yield the changes of layout between two shapes that need no proof: none, or channels first on one
    side and last on the other. All other axes keep their order.

    Channels are the first axis, the second, or, of video, the one behind batch and time. Where shapes
    allow several of these, the first axis is the batch and stays.
    """
    if given == shape:
        yield LayoutChange(given, tuple(range(len(given))), shape, shape)
        return
    if math.prod(given) != math.prod(shape):
        return
    for move in (_in_place, _behind_the_batch, _of_frames, _first):
        fitting = []
        for order in move(_axes(given, shape)):
            if _merges([given[i] for i in order], shape):
                rest = [i for i in range(len(given)) if i not in order]
                fitting.append(LayoutChange(given, (*rest, *order), shape, shape))
        for order in move(_axes(shape, given)) if len(shape) > len(given) else ():
            split = tuple(shape[i] for i in order)
            if _merges(list(split), given):  # the same the other way round
                fitting.append(LayoutChange(split, tuple(map(int, np.argsort(order))), shape, shape))
        if fitting:
            yield from dict.fromkeys(fitting)
            return


def _axes(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes longer than one, and a batch axis of one."""
    batch = shape[:1] == other[:1]
    return tuple(i for i, n in enumerate(shape) if n != 1 or (batch and i == 0))


def _in_place(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [axes]


def _of_frames(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Move the channels of (B, T, C, H, W), which stand behind two axes, or move them back there."""
    return [(*axes[:2], *order) for order in _first(axes[2:])] if len(axes) > 4 else []


def _behind_the_batch(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [(*axes[:1], *order) for order in _first(axes[1:])]


def _first(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Move the first axis to the end, or the last to the beginning."""
    return [(*axes[1:], *axes[:1]), (*axes[-1:], *axes[:-1])] if len(axes) > 1 else []


def _broadcast(given: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[LayoutChange]:
    """Yield the way to repeat a smaller value, with its axes where they fit."""
    size, total = math.prod(given), math.prod(shape)
    if not size or total % size or total == size:
        return
    if _broadcasts(given, shape):
        yield LayoutChange(given, tuple(range(len(given))), given, shape)
        return
    dims = tuple(n for n in given if n != 1)
    places = [i for i, n in enumerate(shape) if n in dims]
    for chosen in permutations(places, len(dims)):
        if all(shape[i] == n for i, n in zip(chosen, dims, strict=True)):
            order = tuple(int(i) for i in np.argsort(chosen))
            full = [1] * len(shape)
            for i, n in zip(chosen, dims, strict=True):
                full[i] = n
            yield LayoutChange(dims, order, tuple(full), shape)
            return


def _broadcasts(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    behind = shape[len(shape) - len(given) :]
    return len(given) <= len(shape) and all(n in (1, m) for n, m in zip(given, behind, strict=True))


def _disorder(order: tuple[int, ...]) -> int:
    return sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])


def _merges(sizes: list[int], shape: tuple[int, ...]) -> bool:
    """Return whether consecutive sizes multiply to the axes of a shape."""
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
    """Yield `a`, then `a` with one axis split into axes of `b`."""
    if len(a) <= 6:
        yield a
    inner = [n for n in b if n != 1]
    for axis, size in enumerate(a):
        for count in range(2, min(len(inner), 4) + 1):
            for parts in dict.fromkeys(permutations(inner, count)):
                if math.prod(parts) == size and len(a) + count - 1 <= 6:
                    yield (*a[:axis], *parts, *a[axis + 1 :])
