"""Samples of tensors that are too large to be kept whole."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A tensor, or some of its elements."""

    values: Any
    """An array of NumPy, PyTorch or JAX."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    spacing: tuple[int, ...] | None = None
    """Every n-th element along each axis is kept; None keeps all."""
    owned: bool = False
    """Whether the values lie in memory that nobody else writes to."""


def sample(x: Any, keep: int | None) -> Sample:
    """Return at most `keep` elements of a tensor, as a view where there are views; None keeps all."""
    shape = tuple(x.shape)
    if keep is None or math.prod(shape) <= keep:
        return Sample(x, shape)
    steps = spacing(shape, keep)
    return Sample(thin_array(x, steps), shape, steps)


def thin_array(x: Any, steps: tuple[int, ...]) -> Any:
    """Return every n-th element along each axis, from the first on."""
    if hasattr(x, "as_strided"):  # PyTorch's indexing is an operation for each axis
        return x.as_strided(
            sampled_shape(tuple(x.shape), steps),
            tuple(stride * step for stride, step in zip(x.stride(), steps, strict=True)),
        )
    return x[tuple(slice(None, None, step) for step in steps)]


def sampled_shape(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a sample."""
    return tuple(-(-size // step) for size, step in zip(shape, steps, strict=True))


@lru_cache(maxsize=4096)
def spacing(shape: tuple[int, ...], keep: int) -> tuple[int, ...]:
    """Return the distance between kept elements along each axis; at most `keep` are kept.

    Distances are odd, so that a sample misses no head, no half of a pair, nor anything else that
    repeats by a power of two. They depend on the lengths of the axes and not on their order, so
    that of (B, C, H, W) and (B, H, W, C) the same elements are kept.
    """
    steps = [1] * len(shape)
    while math.prod(counts := sampled_shape(shape, tuple(steps))) > keep:
        largest = max(counts)
        steps = [
            step + 2 * (1 + step // 8) if count == largest else step
            for step, count in zip(steps, counts, strict=True)
        ]
    return tuple(steps)
