"""How far one tensor is from another: the one error that everything here is judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

_PIECE = 2**13
"""Numbers that stay in the processor's cache, and that BLAS adds up in one thread."""


def relative_error(
    value: np.ndarray,
    reference: np.ndarray,
    *,
    beside: np.ndarray | None = None,
    at_least: float = 0.0,
    holes: bool = False,
) -> float:
    """||value - reference||_2 / ||reference||_2 in float64.

    0 where the two are equal, zeros included; infinite for another shape and where a number is missing.

    Args:
        beside: counted into the size of the reference.
        at_least: what the size of the reference counts as at least.
        holes: what is NaN, or the same infinity, at the same place in both is equal and has no size, as
            in the mask of an attention. The rest is compared.
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
        return 0.0
    size = max(size, at_least)
    error = distance / size if size else math.inf
    return math.inf if math.isnan(error) else error


def joint_error(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """`relative_error` of many tensors as if they were one; each is given as its value and reference."""
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
    """Whether two arrays are the same bit for bit, type and shape included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)))


def norm(array: np.ndarray) -> float:
    """The Euclidean norm of the numbers that are finite, in float64."""
    found = _norm(array)
    if math.isfinite(found):
        return found
    values = wide(array)
    return _norm(values[np.isfinite(values)])


def wide(array: np.ndarray) -> np.ndarray:
    """An array of any type in float64."""
    return array.astype(np.float64, copy=False)


def _norm(array: np.ndarray) -> float:
    return math.sqrt(sum(float(piece.dot(piece)) for piece in _pieces(array)))


def _distance_and_size(value: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """||value - reference|| and ||reference||, of arrays of one shape."""
    distance = size = 0.0
    for one, other in zip(_pieces(value), _pieces(reference), strict=True):
        with np.errstate(invalid="ignore"):  # inf - inf
            apart = one - other
        distance += float(apart.dot(apart))
        size += float(other.dot(other))
    return math.sqrt(distance), math.sqrt(size)


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The numbers of an array in float64, some at a time."""
    flat = array.reshape(-1)
    return (wide(flat[begin : begin + _PIECE]) for begin in range(0, flat.size, _PIECE))
