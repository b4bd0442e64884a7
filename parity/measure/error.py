"""The relative error between two tensors, by which everything here is judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

_PIECE = 2**13
"""Numbers per piece: few enough for the processor's cache and for BLAS to add up in one thread."""


def relative_error(
    value: np.ndarray,
    reference: np.ndarray,
    *,
    beside: np.ndarray | None = None,
    at_least: float = 0.0,
    holes: bool = False,
) -> float:
    """Return ||value - reference||_2 / ||reference||_2, computed in float64.

    The error is 0 where the two are equal, zeros included, and infinite where shapes differ, a number is
    NaN or infinite, or integers differ by less than float64 can tell.

    Args:
        beside: an array whose norm is counted into the reference's.
        at_least: lower bound of the reference's norm.
        holes: count NaN, or the same infinity, at the same place in both as equal and without size,
            as in the mask of an attention. The rest is compared.
    """
    if value.shape != reference.shape:
        return math.inf
    distance, size = _distance_and_size(value, reference)
    if holes and not math.isfinite(distance + size):
        value, reference = wide(value), wide(reference)
        same = (value == reference) | (np.isnan(value) & np.isnan(reference))
        with np.errstate(invalid="ignore"):  # inf - inf
            distance = _norm(np.where(same, 0.0, value - reference))
        size = norm(reference)
    if beside is not None:
        size = math.hypot(size, _norm(beside))
    if distance == 0.0:
        return 0.0 if _same_integers(value, reference) else math.inf
    size = max(size, at_least)
    error = distance / size if size else math.inf
    return math.inf if math.isnan(error) else error


def _same_integers(value: np.ndarray, reference: np.ndarray) -> bool:
    """Return whether integers are the same that are so in float64, which lacks many beyond 2^53; true of
    all other numbers."""
    integers = value.dtype.kind in "iu" and reference.dtype.kind in "iu"
    return not integers or np.array_equal(value, reference)


def joint_error(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the `relative_error` of many tensors as if they were one, from (value, reference) pairs."""
    distance = size = 0.0
    for value, reference in pairs:
        value, reference = wide(value), wide(reference)
        distance += float(np.square(value - reference).sum())
        size += float(np.square(reference).sum())
    if distance == 0.0:
        return 0.0
    error = (distance / size) ** 0.5 if size else math.inf
    return math.inf if math.isnan(error) else error


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays are equal bit for bit, type and shape included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)))


def norm(array: np.ndarray) -> float:
    """Return the Euclidean norm of the finite numbers, in float64."""
    size = _norm(array)
    if math.isfinite(size):
        return size
    values = wide(array)
    return _norm(values[np.isfinite(values)])


def wide(array: np.ndarray) -> np.ndarray:
    """Convert an array of any type to float64."""
    return array.astype(np.float64, copy=False)


def _norm(array: np.ndarray) -> float:
    return math.sqrt(sum(float(piece.dot(piece)) for piece in _pieces(array)))


def _distance_and_size(value: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Return ||value - reference|| and ||reference|| of two arrays of one shape."""
    distance = size = 0.0
    for one, other in zip(_pieces(value), _pieces(reference), strict=True):
        with np.errstate(invalid="ignore"):  # inf - inf
            apart = one - other
        distance += float(apart.dot(apart))
        size += float(other.dot(other))
    return math.sqrt(distance), math.sqrt(size)


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the numbers of an array in float64, `_PIECE` at a time."""
    flat = array.reshape(-1)
    return (wide(flat[begin : begin + _PIECE]) for begin in range(0, flat.size, _PIECE))
