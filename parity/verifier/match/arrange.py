"""Search for the arrangement in which two tensors hold the same numbers: axes permuted, joined or
divided, slices reordered.

A few numbers are compared first for each guess, and all of them only if those agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from parity.porting.dialects.layout import Layout
from parity.verifier.match.fingerprint import bits, mixed
from parity.verifier.match.links import Arrangement, Shape, SliceOrder
from parity.verifier.match.orders import find_order

SAMPLES = 96
"""Number of values that are compared first."""
MOST_AXES = 6
"""Most axes that are permuted (720 permutations); tensors with more are compared as they are."""
HEADS = {".attn.": "hd", "attn_pool.": "ge"}
"""Letters in layouts for the factors (head, value) of an axis, by the part of the name."""
OTHERS = "oipqcnrsuvwxyz"


class _Guess(NamedTuple):
    """A guess at how the axes of two tensors are made of common factors."""

    theirs: tuple[tuple[int, ...], ...]
    """Factors, by number, that make up each axis of B."""
    ours: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    """Sizes of the factors."""


def arrange(ours: np.ndarray, theirs: np.ndarray, kind: np.dtype, name: str = "") -> Arrangement:
    """Find the arrangement that makes `theirs` equal to `ours`; it is not `known` if none was found.

    Args:
        ours: A's tensor.
        theirs: B's tensor, which holds the same numbers after a cast to `kind`.
        name: name of A's leaf, which decides the letters of heads in the layout.
    """
    left, right = bits(ours, kind), bits(theirs, kind)
    options = guesses(ours.shape, theirs.shape, name)
    for guess in options:
        if _agrees(left, right, guess):
            return guess
    for guess in options:
        if orders := _orders(ours, guess.apply(theirs), kind):
            ordered = replace(guess, orders=orders)
            if np.array_equal(ordered.apply(right), left):
                return ordered
    return Arrangement("")


def guesses(ours: Shape, theirs: Shape, name: str = "") -> list[Arrangement]:
    """Return every arrangement that two shapes allow, by permuting the axes of one and joining or
    dividing them.

    Args:
        name: see `arrange`.
    """
    # fewer factors first: a tensor of equal numbers would fit any guess
    options = sorted(_guesses(ours, theirs), key=lambda guess: len(guess.sizes))
    return [_layout(guess, name) for guess in options]


def _agrees(left: np.ndarray, right: np.ndarray, layout: Arrangement) -> bool:
    if left.size == 0:
        return True
    where = np.random.default_rng(0).integers(0, left.size, SAMPLES)
    # the layout is applied to a few positions, so that not all values are moved
    sides = Layout.parse(layout.layout)
    theirs = [letter for axis in sides.theirs for letter in axis]
    ours = [letter for axis in sides.ours for letter in axis]
    apart = dict(
        zip(ours, np.unravel_index(where, [layout.sizes[x] for x in ours] or [1]), strict=False)
    )
    source = (
        np.ravel_multi_index([apart[x] for x in theirs], [layout.sizes[x] for x in theirs])
        if theirs
        else np.zeros_like(where)
    )
    if not np.array_equal(left.reshape(-1)[where], right.reshape(-1)[source]):
        return False
    return np.array_equal(layout.apply(right), left)


def _guesses(ours: Shape, theirs: Shape) -> Iterator[_Guess]:
    """Yield every permutation of one side's axes that the other joins or divides, the plainest first."""
    seen: set[_Guess] = set()
    real_ours, real_theirs = (tuple(n for n in shape if n != 1) for shape in (ours, theirs))
    for permuted, other, turned in ((real_theirs, real_ours, False), (real_ours, real_theirs, True)):
        for order in _orderings(len(permuted)):
            factors = _refine([permuted[i] for i in order], other)
            if factors is None:
                continue
            sizes, moved, plain = factors
            back = tuple(moved[order.index(i)] for i in range(len(order)))
            a, b = (back, plain) if turned else (plain, back)
            guess = _numbered(_Guess(_with_ones(theirs, b), _with_ones(ours, a), sizes))
            if guess not in seen:
                seen.add(guess)
                yield guess


def _numbered(guess: _Guess) -> _Guess:
    """Return the same guess with its factors numbered in A's order."""
    order = [factor for axis in guess.ours for factor in axis]
    theirs, ours = (
        tuple(tuple(order.index(factor) for factor in axis) for axis in side)
        for side in (guess.theirs, guess.ours)
    )
    return _Guess(theirs, ours, tuple(guess.sizes[factor] for factor in order))


def _orderings(count: int) -> Iterator[tuple[int, ...]]:
    if count > MOST_AXES:
        yield tuple(range(count))
        return
    yield from permutations(range(count))


def _refine(
    one: Sequence[int], other: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[int, ...]]] | None:
    """Return the factors that make up the axes of both shapes, in order; None if there are none."""
    if 0 in one:
        equal = tuple(one) == tuple(other)
        each = [(i,) for i in range(len(one))]
        return (tuple(one), each, each) if equal else None
    if math.prod(one) != math.prod(other):
        return None
    ends = [list(np.cumprod(shape, dtype=np.int64)) for shape in (one, other)]
    cuts = sorted({int(end) for side in ends for end in side})
    if any(after % before for before, after in pairwise(cuts)):
        return None
    sizes = tuple(after // before for before, after in zip([1, *cuts], cuts, strict=False))
    sides = []
    for side in ends:
        starts = [0, *(cuts.index(end) + 1 for end in side)]
        sides.append([tuple(range(a, b)) for a, b in pairwise(starts)])
    return sizes, sides[0], sides[1]


def _with_ones(shape: Shape, axes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Put back the axes of length one, which have no factor."""
    rest = iter(axes)
    return tuple(() if length == 1 else next(rest) for length in shape)


def _layout(guess: _Guess, name: str) -> Arrangement:
    names = _letters(guess, name)

    def text(axes: Sequence[tuple[int, ...]]) -> str:
        words = ("".join(names[f] for f in axis) for axis in axes)
        return " ".join("1" if not w else w if len(w) == 1 else f"({' '.join(w)})" for w in words)

    sizes = {letter: guess.sizes[factor] for factor, letter in names.items()}
    return Arrangement(f"{text(guess.theirs)} -> {text(guess.ours)}", sizes)


def _letters(guess: _Guess, name: str) -> dict[int, str]:
    heads = next((letters for where, letters in HEADS.items() if where in name), "")
    joined = next((axis for axis in guess.ours if len(axis) == 2 == len(heads)), ())
    named = dict(zip(joined, heads, strict=False))
    free = iter(OTHERS)
    return {f: named.get(f) or next(free) for f in range(len(guess.sizes))}


def _orders(ours: np.ndarray, theirs: np.ndarray, kind: np.dtype) -> tuple[SliceOrder, ...]:
    """Find the orders of slices, by axis, in which two tensors of one shape differ; empty if none is
    found."""
    orders = []
    left, right = mixed(ours, kind), mixed(theirs, kind)
    for axis in range(ours.ndim):
        others = tuple(other for other in range(ours.ndim) if other != axis)
        sums = [values.sum(axis=others, dtype=np.uint64) for values in (left, right)]
        if np.array_equal(sums[0], sums[1]):
            continue
        if not np.array_equal(np.sort(sums[0]), np.sort(sums[1])):
            return ()
        order = find_order(sums[0], sums[1], axis)
        if order is None:
            return ()
        orders.append(order)
    return tuple(orders)
