"""How far one tensor is from another: the one error that everything here is judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np


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
    value, reference = wide(value), wide(reference)
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = value - reference
    distance, size = _norm(difference), _norm(reference)
    if holes and not math.isfinite(distance + size):
        same = (value == reference) | (np.isnan(value) & np.isnan(reference))
        distance, size = _norm(np.where(same, 0.0, difference)), norm(reference)
    if beside is not None:
        size = math.hypot(size, _norm(wide(beside)))
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
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def norm(array: np.ndarray) -> float:
    """The Euclidean norm of the numbers that are finite, in float64."""
    values = wide(array)
    found = _norm(values)
    return found if math.isfinite(found) else _norm(values[np.isfinite(values)])


def wide(array: np.ndarray) -> np.ndarray:
    """An array of any type in float64."""
    return array.astype(np.float64, copy=False)


def _norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(values))
