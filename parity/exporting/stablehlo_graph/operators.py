"""StableHLO's operators: of tracers in JAX, of arrays in numpy, as the arithmetic of shapes is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

OPERATORS: dict[str, Callable[..., Any]] = {}
"""Functions by the names of operators, of operands and then of attributes by name."""


class Filled(NamedTuple):
    """A number that fills an array, for which its operators need the number alone."""

    number: Any
    shape: tuple[int, ...]


def operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register an operator by its function's name; what is filled becomes an array."""

    def whole(*values: Any, **attributes: Any) -> Any:
        return function(*map(array, values), **attributes)

    OPERATORS[function.__name__.strip("_")] = whole
    return function


def each_number(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an operator that acts on each number for itself."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*values: Any, **attributes: Any) -> Any:
            result = function(*(v.number if isinstance(v, Filled) else v for v in values), **attributes)
            whole = max((each.shape for each in values), key=len)
            return result if result.shape == whole else Filled(result, whole)

        OPERATORS[name] = acting
        return acting

    return register


def array(value: Any) -> Any:
    """Return a value of the program as an array."""
    if not isinstance(value, Filled):
        return value
    return _of(value.number).broadcast_to(value.number, value.shape)


def _of(*values: Any) -> Any:
    """Return the module that computes with some values."""
    return jnp if any(isinstance(each, jax.Array) for each in values) else np


def _elementwise(name: str, by_array: str) -> None:
    each_number(name)(lambda *x: getattr(_of(*x), by_array)(*x))


for _name, _by_array in {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "maximum",
    "minimum": "minimum", "power": "power", "atan2": "arctan2", "remainder": "fmod",
    "exponential": "exp", "exponential_minus_one": "expm1", "log": "log", "log_plus_one": "log1p",
    "tanh": "tanh", "sine": "sin", "cosine": "cos", "sqrt": "sqrt", "cbrt": "cbrt", "abs": "abs",
    "negate": "negative", "sign": "sign", "floor": "floor", "ceil": "ceil",
    "round_nearest_even": "rint", "is_finite": "isfinite", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "not": "invert",
}.items():  # fmt: skip
    _elementwise(_name, _by_array)

_COMPARED = {
    "EQ": "equal", "NE": "not_equal", "GE": "greater_equal", "GT": "greater", "LE": "less_equal",
    "LT": "less",
}  # fmt: skip

for _name, _function in {"rsqrt": lax.rsqrt, "logistic": lax.logistic, "erf": lax.erf, "erfc": lax.erfc,
                         "optimization_barrier": lambda x: x}.items():  # fmt: skip
    each_number(_name)(_function)


@each_number("divide")
def _divide(x, y):
    if np.dtype(x.dtype).kind not in "iu":
        return _of(x, y).divide(x, y)
    if _of(x, y) is jnp:
        return lax.div(x, y)
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)  # towards zero


@each_number("compare")
def _compare(x, y, *, direction):
    return getattr(_of(x, y), _COMPARED[direction])(x, y)


@each_number("select")
def _select(which, x, y):
    return _of(which, x, y).where(which, x, y)


@each_number("clamp")
def _clamp(low, x, high):
    return _of(low, x, high).clip(x, low, high)


@each_number("convert")
def _convert(x, *, to):
    return x.astype(to)


OPERATORS["get_dimension_size"] = lambda x, *, dimension: np.int32(x.shape[dimension])


@operator
def _reshape(x, *, shape):
    return _of(x).reshape(x, _ints(shape))


@operator
def _broadcast_in_dim(x, *, shape, dims):
    shape = _ints(shape)
    if not x.ndim:
        return Filled(x, shape) if shape else x
    if _of(x) is jnp:
        return lax.broadcast_in_dim(x, shape, dims)
    inner = [1] * len(shape)
    for axis, dim in enumerate(dims):
        inner[dim] = x.shape[axis]
    return np.broadcast_to(np.reshape(x, inner), shape)


@operator
def _transpose(x, *, permutation):
    return _of(x).transpose(x, permutation)


@operator
def _slice_(x, *, start, limit, strides):
    start, limit, strides = map(_ints, (start, limit, strides))
    if _of(x) is jnp:
        return lax.slice(x, start, limit, strides)
    return x[tuple(map(slice, start, limit, strides))]


@operator
def _dynamic_slice(x, *starts, sizes):
    return lax.dynamic_slice(x, starts, _ints(sizes))


@operator
def _concatenate(*parts, dimension):
    return _of(*parts).concatenate(parts, dimension)


@operator
def _pad(x, value, *, low, high, interior):
    return lax.pad(x, value, tuple(zip(low, high, interior, strict=True)))


@operator
def _reverse(x, *, dimensions):
    return _of(x).flip(x, dimensions)


@operator
def _iota(*, shape, dimension, of):
    shape = _ints(shape)
    along = np.arange(shape[dimension], dtype=of)
    return np.broadcast_to(
        along.reshape([-1 if k == dimension else 1 for k in range(len(shape))]), shape
    )


@operator
def _reduce(x, initial, *, by, dimensions):
    """Reduce by an operator from its neutral element, which is checked where the graph is read."""
    names = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod"}
    logic = {"and": "all", "or": "any"}
    return getattr(_of(x), (names | logic)[by])(x, dimensions)


@operator
def _argmax(x, *, axis, of):
    return lax.argmax(x, axis, of)


@operator
def _argmin(x, *, axis, of):
    return lax.argmin(x, axis, of)


@operator
def _dot_general(x, y, *, contracting, batching, of):
    return lax.dot_general(x, y, (contracting, batching), preferred_element_type=of)


@operator
def _convolution(
    x, kernel, *, strides, padding, lhs_dilation, rhs_dilation, dims, groups, batch_groups, of
):
    return lax.conv_general_dilated(
        x, kernel, strides, padding, lhs_dilation, rhs_dilation, lax.ConvDimensionNumbers(*dims),
        feature_group_count=groups, batch_group_count=batch_groups, preferred_element_type=of,
    )  # fmt: skip


@operator
def _gather(x, indices, *, offset, collapsed, start_map, batching, indices_batching, axis, sizes):
    """`axis` holds the vector of each index; JAX's is the last."""
    if axis == indices.ndim:
        indices = _of(indices).expand_dims(indices, axis)
    elif axis != indices.ndim - 1:
        indices = _of(indices).moveaxis(indices, axis, -1)
    numbers = lax.GatherDimensionNumbers(offset, collapsed, start_map, batching, indices_batching)
    return lax.gather(x, indices, numbers, _ints(sizes), mode="clip")


def _ints(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(int, numbers))
