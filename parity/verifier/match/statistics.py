"""Statistics that tell whether two arrays hold the same values, in any order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """Statistics of the finite values of an array, in float64."""

    norm: float
    mean: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, array: np.ndarray) -> Statistics:
        """Compute the statistics of an array that is not empty."""
        flat = array.reshape(-1)
        parts = [_moments(flat[i : i + _PART]) for i in range(0, flat.size, _PART)]
        scale = max(part[0] for part in parts) or 1.0
        squares = sum((part[0] / scale) ** 2 * part[1] for part in parts)
        count = sum(part[5] for part in parts)
        largest_float = float(np.finfo(np.float64).max)
        return cls(
            norm=min(scale * math.sqrt(squares), largest_float),
            mean=sum(part[2] * (part[5] / max(count, 1)) for part in parts),
            smallest=min((part[3] for part in parts if part[5]), default=0.0),
            largest=max((part[4] for part in parts if part[5]), default=0.0),
        )


_PART = 2**15
"""Number of values that are processed at once: few enough for a processor's cache."""


def _moments(part: np.ndarray) -> tuple[float, float, float, float, float, int]:
    """Return scale, sum of squares / scale^2, mean, smallest, largest, count of the finite numbers."""
    values = part.astype(np.float64)
    with np.errstate(all="ignore"):
        suspicious = not np.isfinite(values @ values)  # some are not finite, or squares are too large
    if suspicious:
        values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0
    smallest, largest = float(values.min()), float(values.max())
    scale = max(-smallest, largest) or 1.0
    scaled = values / scale
    mean = scale * float(scaled.mean())
    return scale, float(scaled @ scaled), mean, smallest, largest, values.size
