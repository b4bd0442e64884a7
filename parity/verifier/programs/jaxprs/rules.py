"""JAX's primitives in numpy, in float64: an eager primitive costs a compilation of 0.1 s.

A rule takes the equation's parameters and the operands. What is not here runs as JAX itself runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda p, *x: function(*x)


for _name, _function in {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "expm1": np.expm1, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sqrt": np.sqrt, "cbrt": np.cbrt, "abs": np.abs, "sign": np.sign,
    "floor": np.floor, "ceil": np.ceil, "square": np.square, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "rem": np.fmod,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "is_finite": np.isfinite, "nextafter": np.nextafter, "real": np.real, "imag": np.imag,
    "conj": np.conj, "stop_gradient": np.asarray, "copy": np.asarray, "copy_p": np.asarray,
    "optimization_barrier_one": np.asarray, "reduce_precision": np.asarray,
    "complex": lambda a, b: np.asarray(a) + 1j * np.asarray(b),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "clamp": lambda low, x, high: np.clip(x, low, high),
}.items():  # fmt: skip
    RULES[_name] = _elementwise(_function)

for _name, _reduce in {
    "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod,
    "reduce_and": np.bitwise_and.reduce, "reduce_or": np.bitwise_or.reduce,
}.items():  # fmt: skip
    RULES[_name] = lambda p, x, _reduce=_reduce: _reduce(x, axis=tuple(p["axes"]))


def _special_of(name: str) -> Rule:
    def run(p, x):
        if name in ("erf", "erfc") and "torch" in sys.modules:  # scipy.special takes a second to import
            torch = sys.modules["torch"]
            return getattr(torch.special, name)(torch.from_numpy(np.ascontiguousarray(x))).numpy()
        from scipy import special

        return getattr(special, name)(x)

    return run


for _name, _scipy in {
    "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "lgamma": "gammaln", "digamma": "digamma",
}.items():  # fmt: skip
    RULES[_name] = _special_of(_scipy)


@rule("div")
def _div(p, a, b):
    if np.result_type(a, b).kind in "iu":
        quotient = np.floor_divide(np.abs(a), np.abs(b))  # XLA rounds towards zero
        return np.sign(a) * np.sign(b) * quotient
    return np.divide(a, b)


@rule("integer_pow")
def _integer_pow(p, x):
    y = int(p["y"])
    if y < 0:
        return 1.0 / _integer_pow({"y": -y}, x)
    result = None
    power = x
    while y:  # by squaring: np.power calls pow() for every element
        if y & 1:
            result = power if result is None else result * power
        y >>= 1
        power = power * power if y else power
    return np.ones_like(x) if result is None else result


@rule("round")
def _round(p, x):
    return np.rint(x) if "EVEN" in str(p["rounding_method"]) else np.sign(x) * np.floor(np.abs(x) + 0.5)


@rule("convert_element_type")
def _convert(p, x):
    dtype = np.dtype(p["new_dtype"]) if not _is_small_float(p["new_dtype"]) else np.dtype(np.float64)
    return np.asarray(x).astype(dtype, copy=False)


def _is_small_float(dtype: Any) -> bool:
    name = np.dtype(dtype).name
    return name != "float64" and "float" in name


@rule("iota")
def _iota(p):
    shape, dimension = p["shape"], p["dimension"]
    dtype = np.float64 if _is_small_float(p["dtype"]) else p["dtype"]
    along = [1] * len(shape)
    along[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(along), shape)


@rule("broadcast_in_dim")
def _broadcast(p, x, *dynamic):
    x, shape = np.asarray(x), p["shape"]
    expanded = [1] * len(shape)
    for axis, dimension in enumerate(p["broadcast_dimensions"]):
        expanded[dimension] = x.shape[axis]
    return np.broadcast_to(x.reshape(expanded), shape)


@rule("reshape")
def _reshape(p, x, *dynamic):
    x = np.asarray(x)
    return np.reshape(x if p["dimensions"] is None else x.transpose(p["dimensions"]), p["new_sizes"])


@rule("transpose")
def _transpose(p, x):
    return np.transpose(x, p["permutation"])


@rule("squeeze")
def _squeeze(p, x):
    return np.squeeze(x, tuple(p["dimensions"]))


@rule("expand_dims")
def _expand(p, x):
    return np.expand_dims(x, tuple(p["dimensions"]))


@rule("rev")
def _rev(p, x):
    return np.flip(x, tuple(p["dimensions"]))


@rule("slice")
def _slice(p, x):
    strides = p["strides"] or (1,) * len(p["start_indices"])
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


@rule("dynamic_slice")
def _dynamic_slice(p, x, *starts):
    starts = [
        int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, p["slice_sizes"], strict=True)
    ]
    return x[tuple(slice(s, s + k) for s, k in zip(starts, p["slice_sizes"], strict=True))]


@rule("dynamic_update_slice")
def _dynamic_update_slice(p, x, update, *starts):
    x = np.array(x)
    starts = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    x[tuple(slice(s, s + k) for s, k in zip(starts, update.shape, strict=True))] = update
    return x


@rule("concatenate")
def _concatenate(p, *parts):
    return np.concatenate(parts, p["dimension"])


@rule("split")
def _split(p, x):
    return np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"])


@rule("pad")
def _pad(p, x, value):
    config = p["padding_config"]
    x = np.asarray(x)
    sizes = [
        low + n + max(n - 1, 0) * inner + high
        for n, (low, high, inner) in zip(x.shape, config, strict=True)
    ]
    big = [max(low, 0) + n + max(n - 1, 0) * inner + max(high, 0)
           for n, (low, high, inner) in zip(x.shape, config, strict=True)]  # fmt: skip
    full = np.full(big, value, x.dtype)
    full[tuple(slice(max(low, 0), max(low, 0) + n + max(n - 1, 0) * inner, inner + 1)
               for n, (low, _, inner) in zip(x.shape, config, strict=True))] = x  # fmt: skip
    return full[
        tuple(
            slice(max(-low, 0), max(-low, 0) + n) for n, (low, _, _) in zip(sizes, config, strict=True)
        )
    ]


@rule("select_n")
def _select(p, which, *cases):
    if len(cases) == 2:
        return np.where(np.asarray(which).astype(bool), cases[1], cases[0])
    return np.choose(which, cases)


RULES["argmax"] = lambda p, x: np.argmax(x, p["axes"][0]).astype(p["index_dtype"])
RULES["argmin"] = lambda p, x: np.argmin(x, p["axes"][0]).astype(p["index_dtype"])


@rule("bitcast_convert_type")
def _bits(p, x):
    """Read the bits as another type of the same size, as draws of random numbers do."""
    dtype = np.dtype(p["new_dtype"])
    if x.dtype.kind == "f":  # the bits that the program means are those of its own type
        x = x.astype(f"f{dtype.itemsize}")
    seen = x.view(dtype)
    return seen.astype(np.float64) if dtype.kind == "f" else seen


@rule("cumsum")
def _cumsum(p, x):
    if p["reverse"]:
        return np.flip(np.cumsum(np.flip(x, p["axis"]), p["axis"], x.dtype), p["axis"])
    return np.cumsum(x, p["axis"], x.dtype)


@rule("dot_general")
def _dot_general(p, a, b):
    to = p["preferred_element_type"]
    if a.dtype.kind in "iu" and to is not None:  # sums of small products may need more bits
        a = a.astype(np.float64 if _is_small_float(to) else to)
    (over_a, over_b), (batch_a, batch_b) = p["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in over_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in over_b and i not in batch_b]
    batch = [a.shape[i] for i in batch_a]
    inner = int(np.prod([a.shape[i] for i in over_a]))
    left = a.transpose([*batch_a, *free_a, *over_a]).reshape(*batch, -1, inner)
    right = b.transpose([*batch_b, *over_b, *free_b]).reshape(*batch, inner, -1)
    return np.matmul(left, right).reshape(
        [*batch, *(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b)]
    )
