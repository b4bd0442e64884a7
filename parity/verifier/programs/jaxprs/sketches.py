"""Large arrays in few numbers: a few random sums of two arrays tell how far the arrays are apart.

A sum of d weighted by independent normal numbers has a square whose mean is ||d||^2. The weights here
are products, of one number for each row and one for each column, for which that holds as well, and
which take no memory to speak of. (Alon, Matias, Szegedy, "The space complexity of approximating the
frequency moments", 1996.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

LARGE = 1 << 16
"""Numbers from which an array is sketched."""
SUMS = 8
_MOST = 4 * math.sqrt(SUMS)
"""The norm of so many sums is larger than this times the distance less than once in ten thousand times,
and smaller than an eightieth of this once in a million: of arrays of rank one, the worst ones, in two
million draws."""


class Sketch(NamedTuple):
    """What is left of a large array."""

    sums: Any
    """Random sums of it, of shape (SUMS,)."""
    norm: Any
    """Its Euclidean norm."""


def sketched(array: Any, xp: Any = np) -> Any:
    """Return the sketch of a large array of float64, and any other value as it is.

    Args:
        array: an array of numpy or of JAX.
        xp: the module that it is of, `numpy` or `jax.numpy`.
    """
    if getattr(array, "dtype", None) != np.float64 or math.prod(array.shape) < LARGE:
        return array
    matrix = array.reshape(_rows(math.prod(array.shape)), -1)
    of_rows, of_columns = (_weights(each) for each in matrix.shape)
    return Sketch(((matrix @ of_columns) * of_rows).sum(0), xp.linalg.norm(matrix))


def is_finite(sketch: Sketch) -> bool:
    """Return whether an array's sketch says something: no number of the array is infinite or NaN."""
    return bool(np.isfinite(sketch.norm) and np.isfinite(np.asarray(sketch.sums)).all())


def least_distance(theirs: Sketch, mine: Sketch) -> float:
    """Return how far two arrays are apart at least, relative to the norm of the first."""
    distance = float(np.linalg.norm(np.asarray(theirs.sums) - np.asarray(mine.sums))) / _MOST
    return distance / float(theirs.norm) if distance else 0.0


def _rows(size: int) -> int:
    """Return the divisor of a size nearest below its root: short sums round little."""
    return next(each for each in range(math.isqrt(size), 0, -1) if size % each == 0)


def _weights(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((number, SUMS))
