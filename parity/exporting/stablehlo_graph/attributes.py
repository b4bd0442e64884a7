"""Operands and attributes of StableHLO's operations, as Python values."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip
NEUTRAL = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "multiply": 1.0, "and": True, "or": False}
"""What reductions begin from."""
PLAIN = frozenset([
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "atan2", "remainder",
    "exponential", "exponential_minus_one", "log", "log_plus_one", "tanh", "sine", "cosine", "sqrt",
    "cbrt", "abs", "negate", "sign", "floor", "ceil", "round_nearest_even", "is_finite", "and", "or",
    "xor", "not", "rsqrt", "logistic", "erf", "erfc", "optimization_barrier", "select", "clamp",
])  # fmt: skip
"""Operators without attributes that matter."""

_CHOSEN = ["compare", "compare", "and", "or", "select", "select", "return"]
PLACES = (_CHOSEN, ["compare", "compare", "or", *_CHOSEN])
"""What JAX's reductions to a place consist of: of whole numbers, and of others, which may be NaN."""

Invocation = tuple[str, list[Any], dict[str, Any]]
"""An operator's name, its operands, and its attributes, some of which are values of the program."""


def type_of(value: Any) -> str:
    """Return the name of the type of a value's numbers."""
    return TYPES[mlir_type(value)]


def mlir_type(value: Any) -> str:
    """Return MLIR's name of the type of a value's numbers; of a value that is none, of its type."""
    return str(getattr(value.type, "element_type", value.type))


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a value; a free length is a negative number."""
    return tuple(value.type.shape)


def array_of(value: Any) -> np.ndarray:
    """Return a constant."""
    name, shape = TYPES[str(value.type.element_type)], tuple(value.type.shape)
    if name == "bfloat16":  # which MLIR gives as text alone: the bits in hexadecimal, or few decimals
        text = str(value).partition("dense<")[2].rpartition("> :")[0]
        if text.startswith('"0x'):
            return np.frombuffer(bytes.fromhex(text[3:-1]), ml_dtypes.bfloat16).reshape(shape)
        numbers = [_number(each) for each in re.findall(r"[^\[\], ]+", text)]
        return np.resize(np.array(numbers, ml_dtypes.bfloat16), shape)  # one number may fill it
    return np.array(value).astype(name, copy=False).reshape(shape)


def _number(text: str) -> Any:
    """Read a number of MLIR's text: a decimal, or the bits of one that has none."""
    if not text.startswith("0x"):
        return float(text)
    return np.frombuffer(bytes.fromhex(text[2:])[::-1], ml_dtypes.bfloat16)[0]


def attributes_of(name: str, op: Any) -> Invocation | None:
    """Return what an operation does; None if it is not evaluated here."""
    given = [*op.operands]
    if name in PLAIN:
        return name, given, {}
    read = _READ.get(name)
    return read(op, given) if read is not None else None


def _ints(op: Any, key: str) -> tuple[int, ...]:
    return tuple(map(int, op.attributes[key]))


def _shape(op: Any) -> tuple[int, ...]:
    return shape_of(op.results[0])


def _compare(op: Any, given: list[Any]) -> Invocation:
    direction = str(op.attributes["comparison_direction"]).split()[-1].strip(">")
    return "compare", given, {"direction": direction}


def _reduce(op: Any, given: list[Any]) -> Invocation | None:
    body = [each.operation for each in op.regions[0].blocks[0].operations]
    if len(given) == 4:
        return _place(op, given, body)
    maker = _maker(given[1])
    if (len(given), len(body)) != (2, 2) or maker is None or maker.name != "stablehlo.constant":
        return None
    by = body[0].name.removeprefix("stablehlo.")
    neutral = array_of(maker.attributes["value"]) == NEUTRAL.get(by)
    return ("reduce", given, {"by": by, "dimensions": _ints(op, "dimensions")}) if neutral else None


def _maker(value: Any) -> Any:
    """Return the operation that makes a value; None for an argument."""
    return value.owner if hasattr(value.owner, "attributes") else None


def _place(op: Any, given: list[Any], body: list[Any]) -> Invocation | None:
    """Return a reduction to the place of the largest or the smallest value, as JAX writes it."""
    names = [each.name.removeprefix("stablehlo.") for each in body]
    axes, places = _ints(op, "dimensions"), _maker(given[1])
    if names not in PLACES or places is None or "iota_dimension" not in places.attributes:
        return None
    if axes != (places.attributes["iota_dimension"].value,):
        return None
    by = {"GT": "argmax", "LT": "argmin"}.get(_compare(body[0], [])[2]["direction"])
    return (by, given[:1], {"axis": axes[0], "of": type_of(op.results[1])}) if by else None


def _dot_general(op: Any, given: list[Any]) -> Invocation:
    from jax.extend.mlir.dialects import stablehlo

    of = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    over = tuple(of.lhs_contracting_dimensions), tuple(of.rhs_contracting_dimensions)
    batch = tuple(of.lhs_batching_dimensions), tuple(of.rhs_batching_dimensions)
    return "dot_general", given, {"contracting": over, "batching": batch, "of": type_of(op.results[0])}


def _convolution(op: Any, given: list[Any]) -> Invocation:
    from jax.extend.mlir.dialects import stablehlo

    of, rank = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]), len(_shape(op)) - 2
    held = op.attributes
    dims = (
        (of.input_batch_dimension, of.input_feature_dimension, *of.input_spatial_dimensions),
        (of.kernel_output_feature_dimension, of.kernel_input_feature_dimension,
         *of.kernel_spatial_dimensions),
        (of.output_batch_dimension, of.output_feature_dimension, *of.output_spatial_dimensions),
    )  # fmt: skip
    ones = (1,) * rank
    windows = {
        key: _ints(op, name) if name in held else ones
        for key, name in (("strides", "window_strides"), ("lhs_dilation", "lhs_dilation"),
                          ("rhs_dilation", "rhs_dilation"))
    }  # fmt: skip
    flat = np.array(held["padding"]).reshape(-1, 2).tolist() if "padding" in held else [(0, 0)] * rank
    return "convolution", given, {
        **windows, "padding": tuple(map(tuple, flat)), "dims": dims,
        "groups": held["feature_group_count"].value, "batch_groups": held["batch_group_count"].value,
        "of": type_of(op.results[0]),
    }  # fmt: skip


def _gather(op: Any, given: list[Any]) -> Invocation:
    from jax.extend.mlir.dialects import stablehlo

    of = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = given.pop() if op.name.endswith("dynamic_gather") else _ints(op, "slice_sizes")
    return "gather", given, {
        "offset": tuple(of.offset_dims), "collapsed": tuple(of.collapsed_slice_dims),
        "start_map": tuple(of.start_index_map), "batching": tuple(of.operand_batching_dims),
        "indices_batching": tuple(of.start_indices_batching_dims), "axis": of.index_vector_dim,
        "sizes": sizes,
    }  # fmt: skip


def _slice(op: Any, given: list[Any]) -> Invocation:
    names = {"start": "start_indices", "limit": "limit_indices", "strides": "strides"}
    return "slice", given, {key: _ints(op, name) for key, name in names.items()}


def _iota(op: Any, given: list[Any]) -> Invocation:
    shape = given[0] if given else _shape(op)
    dimension = op.attributes["iota_dimension"].value
    return "iota", [], {"shape": shape, "dimension": dimension, "of": type_of(op.results[0])}


def _pad(op: Any, given: list[Any]) -> Invocation:
    names = {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"}
    return "pad", given, {key: _ints(op, name) for key, name in names.items()}


_READ: dict[str, Any] = {
    "compare": _compare, "reduce": _reduce, "dot_general": _dot_general, "convolution": _convolution,
    "gather": _gather, "dynamic_gather": _gather, "slice": _slice, "iota": _iota,
    "dynamic_iota": _iota, "pad": _pad,
    "convert": lambda op, x: ("convert", x, {"to": type_of(op.results[0])}),
    "get_dimension_size": lambda op, x: (
        "get_dimension_size", x, {"dimension": op.attributes["dimension"].value}),
    "reshape": lambda op, x: ("reshape", x, {"shape": _shape(op)}),
    "dynamic_reshape": lambda op, x: ("reshape", x[:1], {"shape": x[1]}),
    "broadcast_in_dim": lambda op, x: (
        "broadcast_in_dim", x, {"shape": _shape(op), "dims": _ints(op, "broadcast_dimensions")}),
    "dynamic_broadcast_in_dim": lambda op, x: (
        "broadcast_in_dim", x[:1], {"shape": x[1], "dims": _ints(op, "broadcast_dimensions")}),
    "transpose": lambda op, x: ("transpose", x, {"permutation": _ints(op, "permutation")}),
    "real_dynamic_slice": lambda op, x: (
        "slice", x[:1], {"start": x[1], "limit": x[2], "strides": x[3]}),
    "dynamic_slice": lambda op, x: ("dynamic_slice", x, {"sizes": _ints(op, "slice_sizes")}),
    "concatenate": lambda op, x: ("concatenate", x, {"dimension": op.attributes["dimension"].value}),
    "reverse": lambda op, x: ("reverse", x, {"dimensions": _ints(op, "dimensions")}),
}  # fmt: skip
