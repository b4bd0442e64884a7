"""ONNX operators as functions of PyTorch tensors, by the names and the attributes of the standard.

What comes out of shapes is computed from numpy arrays to numpy arrays: see
`parity.exporting.onnx_graph.operands.fold_constants`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from parity.exporting.onnx_graph.operands import ints, number, tensor
from parity.exporting.onnx_graph.padding import conv, pad

TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
"""Types by the numbers of `onnx.TensorProto`."""
_LONGEST = 2**23
"""Most numbers of a range: positions of tokens."""


def of_tensors(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors as an operator without attributes."""
    return lambda *operands: run(*(tensor(each) for each in operands))


def folded(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of two tensors as an operator of any number."""
    return lambda *operands: functools.reduce(run, map(tensor, operands))


def _div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = not (a.is_floating_point() or b.is_floating_point())
    return torch.div(a, b, rounding_mode="trunc" if whole else None)


def reduced(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction of a tensor as an operator; its axes are an attribute or, later, an operand."""

    def operator(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        x = tensor(x)
        dims = ints(axes) if axes is not None else []
        if not dims and noop_with_empty_axes:
            return x
        return run(x, dims or list(range(x.ndim)), bool(keepdims))

    return operator


def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    x = tensor(x)
    return x.reshape([x.shape[i] if not n and not allowzero else n for i, n in enumerate(ints(shape))])


def _transpose(x: Any, *, perm: Sequence[int] | None = None) -> Any:
    x = tensor(x)
    return x.permute(*(perm or range(x.ndim)[::-1]))


def _squeeze(x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    return x.squeeze(tuple(ints(axes))) if axes is not None else x.squeeze()


def _unsqueeze(x: Any, axes: Any) -> Any:
    x, axes = tensor(x), ints(axes)
    for axis in sorted(each % (x.ndim + len(axes)) for each in axes):
        x = x.unsqueeze(axis)
    return x


def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    x, starts = tensor(x), ints(starts)
    axes = ints(axes) if axes is not None else list(range(len(starts)))
    steps = ints(steps) if steps is not None else [1] * len(starts)
    for axis, begin, end, step in zip(axes, starts, ints(ends), steps, strict=True):
        length = x.shape[axis]
        first, last, stride = slice(begin, end, step).indices(length)
        if stride > 0:
            x = x.narrow(axis, first, max(last - first, 0))
            x = x[(slice(None),) * (axis % x.ndim) + (slice(None, None, stride),)] if stride > 1 else x
        else:
            x = x.index_select(axis, torch.from_numpy(np.arange(first, last, stride, dtype=np.int64)))
    return x


def _split(x: Any, split: Any = None, *, axis: int = 0, num_outputs: int = 0) -> Any:
    x = tensor(x)
    if split is not None:
        return tuple(x.split(ints(split), axis))
    return tuple(x.split(-(-x.shape[axis] // num_outputs), axis))


def _concat(*parts: Any, axis: int) -> Any:
    return torch.cat([tensor(each) for each in parts], axis)


def _expand(x: Any, shape: Any) -> Any:
    x = tensor(x)
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape)))


def _tile(x: Any, repeats: Any) -> Any:
    return tensor(x).repeat(ints(repeats))


def _gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    x, indices = tensor(x), tensor(indices).to(torch.int64)
    if not indices.ndim and not isinstance(x, torch.nn.Parameter):
        return x.select(axis, int(indices))
    whole = torch.where(indices < 0, indices + x.shape[axis], indices)
    rows = x.index_select(axis, whole.reshape(-1))
    axis %= x.ndim
    return rows.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    x, indices = tensor(x), tensor(indices).to(torch.int64)
    return x.gather(axis, torch.where(indices < 0, indices + x.shape[axis], indices))


def _gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    assert not batch_dims  # see `find_unsupported`
    return tensor(x)[tensor(indices).to(torch.int64).unbind(-1)]


def _shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


def _constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    filled = np.zeros(1, np.float32) if value is None else value
    return np.broadcast_to(filled[0], ints(shape))  # which takes nothing yet


def _range(start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (np.asarray(tensor(each)).item() for each in (start, limit, delta))
    if (count := (last - first) / step) > _LONGEST:
        raise ValueError(f"{count:.0f} numbers, more than {_LONGEST}")
    return np.arange(first, last, step, dtype=np.asarray(tensor(start)).dtype)


def _cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return tensor(x).to(TYPES[to])


def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    bounds = [None if each is None else number(each) for each in (low, high)]
    return tensor(x).clamp(*bounds)


def _softmax(x: Any, *, axis: int = -1) -> Any:
    return torch.softmax(tensor(x), axis)


def _log_softmax(x: Any, *, axis: int = -1) -> Any:
    return torch.log_softmax(tensor(x), axis)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(tensor(x), approximate=approximate)


def _layer_normalization(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    x, bias = tensor(x), None if bias is None else tensor(bias)
    return F.layer_norm(x, x.shape[axis:], tensor(scale), bias, epsilon)


def _rmsnormalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    x = tensor(x)
    return F.rms_norm(x, x.shape[axis:], tensor(scale), epsilon)


def _gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,  # noqa: N803  # the standard's names
) -> Any:  # fmt: skip
    a, b = tensor(a), tensor(b)
    product = (a.t() if transA else a) @ (b.t() if transB else b)
    product = product if alpha == 1.0 else product * alpha
    return product if c is None else product + (tensor(c) if beta == 1.0 else tensor(c) * beta)


def _trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return (torch.triu if upper else torch.tril)(tensor(x), 0 if k is None else ints(k)[0])


def _arg_max(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return tensor(x).argmax(axis, bool(keepdims))


def _dequantize_linear(x: Any, scale: Any, zero: Any = None, *, axis: int = 1) -> Any:
    x, scale = tensor(x), tensor(scale)
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)] if scale.numel() > 1 else []
    moved = x.to(torch.float64) if zero is None else x.to(torch.float64) - tensor(zero).reshape(shape)
    return moved * scale.reshape(shape)


def _dynamic_quantize_linear(x: Any) -> Any:
    x = tensor(x)
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    zero = torch.round(-low / scale).clamp(0, 255)
    return torch.round(x / scale + zero).clamp(0, 255), scale, zero


def _mat_mul_integer(a: Any, b: Any, zero_a: Any = None, zero_b: Any = None) -> Any:
    a, b = tensor(a).to(torch.float64), tensor(b).to(torch.float64)
    a = a if zero_a is None else a - tensor(zero_a)
    return a @ (b if zero_b is None else b - tensor(zero_b))


def _flatten(x: Any, *, axis: int = 1) -> Any:
    return tensor(x).flatten(axis)


def _einsum(*parts: Any, equation: str) -> Any:
    return torch.einsum(equation, *map(tensor, parts))


def _identity(x: Any) -> Any:
    return x


def _dropout(x: Any, ratio: Any = None, training_mode: Any = None, *, seed: int = 0) -> Any:
    return x


OPERATORS: dict[str, Callable[..., Any]] = {
    **{
        name: of_tensors(run)
        for name, run in {
            "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": _div, "Pow": torch.pow,
            "Neg": torch.neg, "Abs": torch.abs, "Sqrt": torch.sqrt, "Exp": torch.exp, "Log": torch.log,
            "Erf": torch.erf, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Relu": torch.relu,
            "Reciprocal": torch.reciprocal, "Floor": torch.floor, "Ceil": torch.ceil,
            "Round": torch.round, "Sign": torch.sign, "Sin": torch.sin, "Cos": torch.cos,
            "Where": torch.where, "Equal": torch.eq, "Less": torch.lt, "LessOrEqual": torch.le,
            "Greater": torch.gt, "GreaterOrEqual": torch.ge, "And": torch.logical_and,
            "Or": torch.logical_or, "Not": torch.logical_not, "MatMul": torch.matmul,
            "IsNaN": torch.isnan, "Softplus": F.softplus,
        }.items()
    },
    "Max": folded(torch.maximum), "Min": folded(torch.minimum), "Sum": folded(torch.add),
    "ReduceMean": reduced(lambda x, dims, keep: x.mean(dims, keep)),
    "ReduceSum": reduced(lambda x, dims, keep: x.sum(dims, keep)),
    "ReduceMax": reduced(lambda x, dims, keep: x.amax(dims, keep)),
    "ReduceMin": reduced(lambda x, dims, keep: x.amin(dims, keep)),
    "ReduceSumSquare": reduced(lambda x, dims, keep: x.square().sum(dims, keep)),
    "ReduceL2": reduced(lambda x, dims, keep: x.square().sum(dims, keep).sqrt()),
    "Dropout": _dropout, "Identity": _identity,
    "Reshape": _reshape, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Slice": _slice, "Split": _split, "Concat": _concat, "Expand": _expand, "Tile": _tile,
    "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "Shape": _shape, "ConstantOfShape": _constant_of_shape, "Range": _range, "Cast": _cast,
    "Clip": _clip, "Softmax": _softmax, "LogSoftmax": _log_softmax, "Gelu": _gelu,
    "LayerNormalization": _layer_normalization, "RMSNormalization": _rmsnormalization, "Gemm": _gemm,
    "Conv": conv, "Pad": pad, "Trilu": _trilu, "ArgMax": _arg_max,
    "DequantizeLinear": _dequantize_linear, "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _mat_mul_integer, "Flatten": _flatten, "Einsum": _einsum,
}  # fmt: skip
"""Operators by their names."""
RESULTS = {"Split": None, "DynamicQuantizeLinear": 3}
"""How many results an operator has, where it is not one; None: as many as the node names."""


def find_unsupported(
    name: str, operands: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[str]
) -> str:
    """Say what of a node is not evaluated here; empty if all of it is.

    Args:
        results: names of its outputs that somebody uses.
    """
    if name not in OPERATORS:
        return "which is not"
    try:
        inspect.signature(OPERATORS[name]).bind(*operands, **attributes)
    except TypeError as error:
        return f"which is not as it stands here ({error})"
    if name == "Cast" and attributes["to"] not in TYPES:
        return f"whose to = {attributes['to']} is a type that is not"
    if name == "GatherND" and attributes.get("batch_dims"):
        return f"whose batch_dims = {attributes['batch_dims']} is not"
    if name not in RESULTS and len(results) > 1:
        return f"whose output {results[1]} is not"
    return ""
