"""Values on their way into a program that runs in float64, and out of it."""

from __future__ import annotations

from typing import Any

import numpy as np


def leaf_value(value: Any) -> Any:
    """A leaf as numpy holds it: floating point in float64; keys of random generators stay JAX's."""
    import jax

    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    floating = array.dtype.kind == "f" or "float" in array.dtype.name
    return array.astype(np.float64) if floating else array


def cast(value: Any, dtype: str) -> Any:
    """A leaf in another floating point type; what is no floating point number stays."""
    import jax

    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    array = np.asarray(value)
    floating = array.dtype.kind == "f" or "float" in array.dtype.name
    return jax.numpy.asarray(array, dtype) if floating else array


def rounding_of(dtype: Any) -> float:
    """Half the distance of 1 to the next number; 0 of float64 and of what is no floating point type."""
    import ml_dtypes

    name = getattr(dtype, "name", str(dtype)).removeprefix("torch.")
    if "float" not in name or name == "float64":
        return 0.0
    return float(ml_dtypes.finfo(name).eps) / 2


def literal(value: Any) -> Any:
    """A number written in the program; one in float32 stands for the shortest decimal that rounds to
    it."""
    dtype = np.asarray(value).dtype
    if dtype.name != "float64" and "float" in dtype.name:
        return np.float64(str(np.asarray(value)[()])) if dtype.name == "float32" else np.float64(value)
    return value if np.ndim(value) else np.asarray(value)[()]


def widened(value: Any) -> Any:
    """A parameter that is a small floating point type becomes float64."""
    if isinstance(value, (np.dtype, type)) and not isinstance(value, bool):
        try:
            return np.dtype(np.float64) if rounding_of(np.dtype(value)) else value
        except TypeError:
            return value
    return value


def lowered(result: Any) -> Any:
    """A result of JAX's as numpy holds it; keys of random generators stay JAX's."""
    import jax

    return result if jax.numpy.issubdtype(result.dtype, jax.dtypes.prng_key) else np.asarray(result)
