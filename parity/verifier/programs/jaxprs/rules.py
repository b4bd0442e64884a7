"""JAX's primitives in numpy, in float64: an eager primitive costs a compilation of 0.1 s.

A rule takes the equation's parameters and the operands. What is not here runs as JAX itself runs it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.verifier.programs.jaxprs.values import widened
from parity.verifier.programs.special import special

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
    "max": np.maximum, "min": np.minimum, "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "expm1": np.expm1, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sqrt": np.sqrt, "cbrt": np.cbrt, "abs": np.abs, "sign": np.sign,
    "floor": np.floor, "ceil": np.ceil, "square": np.square, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "is_finite": np.isfinite, "nextafter": np.nextafter, "real": np.real, "imag": np.imag,
    "conj": np.conj, "copy": np.asarray,
    "reduce_precision": np.asarray,  # a smaller type that a program asks for is not followed
    "complex": lambda a, b: np.asarray(a) + 1j * np.asarray(b),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "clamp": lambda low, x, high: np.clip(x, low, high),
}.items():  # fmt: skip
    RULES[_name] = _elementwise(_function)

for _name, _reduce in {
    "reduce_sum": np.add.reduce, "reduce_prod": np.multiply.reduce,
    "reduce_and": np.bitwise_and.reduce, "reduce_or": np.bitwise_or.reduce,
}.items():  # fmt: skip
    RULES[_name] = lambda p, x, _reduce=_reduce: _reduce(x, axis=tuple(p["axes"]), dtype=x.dtype)


@rule("reduce_max")
def _reduce_max(p, x):
    return np.max(x, axis=tuple(p["axes"])) if x.size else _of_nothing(p, x, -np.inf, "min")


@rule("reduce_min")
def _reduce_min(p, x):
    return np.min(x, axis=tuple(p["axes"])) if x.size else _of_nothing(p, x, np.inf, "max")


def _of_nothing(p: dict[str, Any], x: np.ndarray, infinite: float, end: str) -> Any:
    """Return the largest or the least of no numbers: what no number is beyond."""
    number: Any = infinite
    if x.dtype.kind == "b":
        number = infinite > 0
    elif x.dtype.kind in "iu":
        number = getattr(np.iinfo(x.dtype), end)
    return np.full([n for axis, n in enumerate(x.shape) if axis not in p["axes"]], number, x.dtype)


def _special_of(name: str) -> Rule:
    def run(p, x):
        result = special(name, x)
        return np.where(np.isneginf(x), np.inf, result) if name == "gammaln" else result

    return run


for _name, _scipy in {
    "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "lgamma": "gammaln", "digamma": "digamma",
}.items():  # fmt: skip
    RULES[_name] = _special_of(_scipy)


@rule("div")
def _div(p, a, b):
    """Divide; integers towards zero, and by zero to -1."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~np.zeros_like(quotient), quotient)


@rule("rem")
def _rem(p, a, b):
    """Return what a division towards zero leaves; one of integers by zero leaves all."""
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype)))


@rule("pow")
def _pow(p, x, y):
    powers = np.power(x, y)
    if y.ndim == 0 and y == 0.5 and x.dtype.kind == "f":  # np.power takes the root then
        return np.where(np.isneginf(x), np.inf, powers)
    return powers


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
    if "EVEN" in str(p["rounding_method"]):
        return np.rint(x)
    whole = np.trunc(x)  # x + 0.5 would be rounded itself
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


@rule("convert_element_type")
def _convert(p, x):
    dtype = np.dtype(widened(p["new_dtype"]))
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    whole = x.dtype.kind == "f" and dtype.kind in "iu"
    return _saturated(x, dtype) if whole else x.astype(dtype, copy=False)


def _saturated(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert to whole numbers: what is beyond their ends to these, and NaN to 0."""
    ends = np.iinfo(dtype)
    under, over = x <= ends.min, x >= ends.max
    inside = ~(under | over | np.isnan(x))
    whole = np.where(inside, x, 0.0).astype(dtype)
    if inside.all():
        return whole
    whole[under], whole[over] = ends.min, ends.max
    return whole


@rule("iota")
def _iota(p):
    shape, dimension = p["shape"], p["dimension"]
    dtype = widened(p["dtype"])
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
    return np.reshape(x if p["dimensions"] is None else x.transpose(p["dimensions"]), p["new_sizes"])


@rule("transpose")
def _transpose(p, x):
    return np.transpose(x, p["permutation"])


@rule("squeeze")
def _squeeze(p, x):
    return np.squeeze(x, tuple(p["dimensions"]))


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
    result = cases[0]  # np.choose takes 64 at most
    for number, each in enumerate(cases[1:], 1):
        result = np.where(which == number, each, result)
    return result


RULES["argmax"] = lambda p, x: np.argmax(x, p["axes"][0]).astype(p["index_dtype"])
RULES["argmin"] = lambda p, x: np.argmin(x, p["axes"][0]).astype(p["index_dtype"])


@rule("bitcast_convert_type")
def _bits(p, x):
    """Read the bits as another type, as draws of random numbers do; several small ones along an axis."""
    old, new = np.dtype(p["old_dtype"]), np.dtype(p["new_dtype"])
    x = x.astype(old, copy=False)  # the bits that the program means are those of its own type
    if old.itemsize == new.itemsize:
        seen = x.view(new)
    elif old.itemsize > new.itemsize:
        seen = np.ascontiguousarray(x[..., None]).view(new)
    else:
        seen = np.ascontiguousarray(x).view(new)[..., 0]
    return seen.astype(widened(new), copy=False)


@rule("cumsum")
def _cumsum(p, x):
    if p["reverse"]:
        return np.flip(np.cumsum(np.flip(x, p["axis"]), p["axis"], x.dtype), p["axis"])
    return np.cumsum(x, p["axis"], x.dtype)


@rule("dot_general")
def _dot_general(p, a, b):
    to = p["preferred_element_type"]
    if a.dtype.kind in "iu" and to is not None:  # sums of small products may need more bits
        a = a.astype(widened(np.dtype(to)))
    (over_a, over_b), (batch_a, batch_b) = p["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in over_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in over_b and i not in batch_b]
    batch = [a.shape[i] for i in batch_a]
    of_a, of_b = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
    inner = math.prod(a.shape[i] for i in over_a)
    left = a.transpose([*batch_a, *free_a, *over_a]).reshape(*batch, math.prod(of_a), inner)
    right = b.transpose([*batch_b, *over_b, *free_b]).reshape(*batch, inner, math.prod(of_b))
    return _product(left, right).reshape([*batch, *of_a, *of_b])


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply matrices: with torch where it is loaded, several times as fast where there are many."""
    torch = sys.modules.get("torch")
    if torch is None or not left.dtype == right.dtype == np.float64 or left.size < _SMALL:
        return np.matmul(left, right)
    # torch warns of memory that may not be written to, though it does not
    left, right = (each if each.flags.writeable else each.copy() for each in (left, right))
    return torch.matmul(torch.from_numpy(left), torch.from_numpy(right)).numpy()


_SMALL = 1 << 12
"""Numbers of a factor below which calling torch takes longer than it saves."""
