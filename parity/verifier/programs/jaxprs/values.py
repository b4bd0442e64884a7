"""Values on their way into a program that runs in float64, and out of it."""

from __future__ import annotations

from typing import Any

import numpy as np


def leaf_value(value: Any) -> Any:
    """Convert a leaf to numpy: floating point to float64; keys of random generators stay JAX's."""
    import jax

    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    floating = array.dtype.kind == "f" or "float" in array.dtype.name
    return _in_float64(array) if floating else array


def _in_float64(array: np.ndarray) -> np.ndarray:
    """Convert an array; into memory from which JAX reads without a copy."""
    if array.dtype == np.float64:
        return array
    memory = np.empty(array.size * 8 + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    wide = memory[start : start + array.size * 8].view(np.float64).reshape(array.shape)
    wide[...] = array
    return wide


_ALIGNED = 64
"""Bytes of which XLA wants the address of a buffer to be a multiple."""


def cast(value: Any, dtype: str) -> Any:
    """Convert a leaf to another floating point type; what is no floating point number stays."""
    import jax

    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    array = np.asarray(value)
    floating = array.dtype.kind == "f" or "float" in array.dtype.name
    return jax.numpy.asarray(array, dtype) if floating else array


def rounding_of(dtype: Any) -> float:
    """Return half the distance of 1 to the next number; 0 for float64 and for other kinds of types."""
    import ml_dtypes

    name = getattr(dtype, "name", str(dtype)).removeprefix("torch.").replace("complex64", "float32")
    if "float" not in name or name == "float64":
        return 0.0
    return float(ml_dtypes.finfo(name).eps) / 2


def rounding_held(array: Any) -> float:
    """Return the rounding of the numbers of a constant, which may have been widened from float32."""
    own = rounding_of(getattr(array, "dtype", "float64"))
    if own or not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.size < 2:
        return own
    with np.errstate(over="ignore"):
        is_float32 = np.array_equal(array.astype(np.float32), array)
        is_written = np.array_equal(array.astype(np.float16), array)  # 0.5 is the same in every type
    return rounding_of("float32") if is_float32 and not is_written else 0.0


def literal(value: Any) -> Any:
    """Return a number written in the program; for one in float32, the shortest decimal that rounds to
    it."""
    dtype = np.asarray(value).dtype
    if dtype.name != "float64" and "float" in dtype.name:
        return np.float64(str(np.asarray(value)[()])) if dtype.name == "float32" else np.float64(value)
    return value if np.ndim(value) else np.asarray(value)[()]


def widened(value: Any) -> Any:
    """Replace a parameter that is a small floating point type by float64."""
    if isinstance(value, (np.dtype, type)) and not isinstance(value, bool):
        try:
            dtype = np.dtype(value)
            wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
            return wide if rounding_of(dtype) else value
        except TypeError:
            return value
    return value


def lowered(result: Any) -> Any:
    """Convert a result of JAX's to numpy; keys of random generators stay JAX's."""
    import jax

    return result if jax.numpy.issubdtype(result.dtype, jax.dtypes.prng_key) else np.asarray(result)
