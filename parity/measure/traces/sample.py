"""What is kept of a tensor that is too large to be kept whole."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A tensor, or some of its elements."""

    values: Any
    """Of NumPy, PyTorch or JAX."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    spacing: tuple[int, ...] | None = None
    """Along each axis one element in so many is kept; None is all."""

    def copied(self) -> Sample:
        """The same in memory of its own, of NumPy's arrays."""
        return self._replace(values=self.values.copy())


def sample(x: Any, keep: int | None) -> Sample:
    """At most `keep` elements of a tensor, a view of it where its framework has views; None is all."""
    shape = tuple(x.shape)
    if keep is None or math.prod(shape) <= keep:
        return Sample(x, shape)
    steps = spacing(shape, keep)
    return Sample(thinned(x, steps), shape, steps)


def thinned(x: Any, steps: tuple[int, ...]) -> Any:
    """Along each axis one element in so many, the first included."""
    if hasattr(x, "as_strided"):  # PyTorch's indexing is an operation for each axis
        return x.as_strided(
            sampled_shape(tuple(x.shape), steps),
            tuple(stride * step for stride, step in zip(x.stride(), steps, strict=True)),
        )
    return x[tuple(slice(None, None, step) for step in steps)]


def sampled_shape(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a sample."""
    return tuple(-(-size // step) for size, step in zip(shape, steps, strict=True))


@lru_cache(maxsize=4096)
def spacing(shape: tuple[int, ...], keep: int) -> tuple[int, ...]:
    """How far apart the elements are, along each axis, of which there are at most `keep`.

    Odd, so that neither heads nor pairs nor anything else that repeats by a power of two falls through.
    It depends on the lengths of the axes and not on their order, so that of (B, C, H, W) and
    (B, H, W, C) the same elements are kept.
    """
    steps = [1] * len(shape)
    while math.prod(counts := sampled_shape(shape, tuple(steps))) > keep:
        largest = max(counts)
        steps = [
            step + 2 * (1 + step // 8) if count == largest else step
            for step, count in zip(steps, counts, strict=True)
        ]
    return tuple(steps)
