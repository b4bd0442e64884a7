"""Elementary functions and the rounding of narrow types, in float64 numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return np.asarray(_erf(x), dtype=np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Exponentials that sum to 1 along an axis."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded to the nearest numbers of a type, and back."""
    return x.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))).astype(np.float64)


def tf32(x: np.ndarray) -> np.ndarray:
    """The operand of a TF32 product: float32 rounded to 10 bits of mantissa, ties away from zero."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def tf32_cut(x: np.ndarray) -> np.ndarray:
    """The same with the lower bits cut off, as hardware does to operands that nobody rounded."""
    bits = x.astype(np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


Rounding = Callable[[np.ndarray], np.ndarray]


def exactly(x: np.ndarray) -> np.ndarray:
    """No rounding."""
    return x
