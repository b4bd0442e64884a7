"""One operation of a JAX program as an expression in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from jax import lax

from parity.verifier.programs.jaxprs import equations
from parity.verifier.programs.jaxprs.exchanges import Collective
from parity.verifier.programs.jaxprs.sharded import OnEach
from parity.verifier.programs.operation import Operation
from vit_config import InputError

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "eq": "==", "ne": "!=",
          "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "and": "&", "or": "|",
          "add_any": "+"}  # fmt: skip
_JNP = {"max": "maximum", "min": "minimum", "exp": "exp", "exp2": "exp2", "log": "log", "expm1": "expm1",
        "log1p": "log1p", "tanh": "tanh", "sin": "sin", "cos": "cos", "sqrt": "sqrt",
        "abs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil", "square": "square"}  # fmt: skip
_LAX = {"erf": "erf", "erfc": "erfc", "rsqrt": "rsqrt", "logistic": "logistic", "erf_inv": "erf_inv"}
_REDUCE = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod"}
_SAME = frozenset(["stop_gradient", "copy", "optimization_barrier", "reduce_precision"])

_PLAIN: dict[str, Callable[..., str]] = {
    "neg": lambda p, x: f"-{x}",
    "not": lambda p, x: f"~{x}",
    "transpose": lambda p, x: f"{x}.transpose{tuple(p['permutation'])}",
    "reshape": lambda p, x: (
        f"{x}.reshape({tuple(p['new_sizes'])})"
        if p["dimensions"] is None
        else f"lax.reshape({x}, {tuple(p['new_sizes'])}, {tuple(p['dimensions'])})"
    ),
    "squeeze": lambda p, x: f"{x}.squeeze({tuple(p['dimensions'])})",
    "rev": lambda p, x: f"lax.rev({x}, {tuple(p['dimensions'])})",
    "broadcast_in_dim": lambda p, x, *_: (
        f"lax.broadcast_in_dim({x}, {tuple(p['shape'])}, {tuple(p['broadcast_dimensions'])})"
    ),
    "dot_general": lambda p, x, y: f"lax.dot_general({x}, {y}, {p['dimension_numbers']})",
    "convert_element_type": lambda p, x: f"jnp.asarray({x}).astype({_type(p['new_dtype'])})",
    "iota": lambda p: (
        f"lax.broadcasted_iota({_type(p['dtype'])}, {tuple(p['shape'])}, {p['dimension']})"
    ),
    "concatenate": lambda p, *x: f"jnp.concatenate([{', '.join(x)}], {p['dimension']})",
    "cumsum": lambda p, x: f"lax.cumsum({x}, {p['axis']}, reverse={p['reverse']})",
    "clamp": lambda p, low, x, high: f"lax.clamp({low}, {x}, {high})",
    "pad": lambda p, x, value: f"lax.pad({x}, {value}, {tuple(p['padding_config'])})",
}


def jax_code(op: Operation, operands: Sequence[str]) -> list[str]:
    """Return the line that computes an operation; see `torch_code`.

    Raises:
        InputError: it is an operation between devices.
    """
    run = op.run
    if isinstance(run, Collective) or op.name in ("shard", "unshard"):
        raise InputError(f"{op.source or op.name}: what devices exchange cannot be written as a program")
    if op.name.startswith("random_"):
        raise InputError(f"{op.source or op.name}: drawn numbers cannot be written as a program")
    if isinstance(run, OnEach):
        own = [f"{x}[i]" if stacked else x for x, stacked in zip(operands, run.stacked, strict=True)]
        return [f"jnp.stack([{_expression(op, run.run, own)} for i in range({run.count})])"]
    return [_expression(op, run, operands)]


def _expression(op: Operation, run: Any, operands: Sequence[str]) -> str:
    if isinstance(run, partial) and run.func in (equations.pick, equations.row_of):
        return f"{operands[0]}[{run.args[0]}]"
    if run is equations.stack:
        return f"jnp.stack([{', '.join(operands)}])"
    name, params = op.extra["primitive"], op.extra["params"]
    if name == "integer_pow":
        return f"{operands[0]} ** {operands[1]}"
    if name in _INFIX and len(operands) == 2:
        return f"{operands[0]} {_INFIX[name]} {operands[1]}"
    if name in _JNP:
        return f"jnp.{_JNP[name]}({', '.join(operands)})"
    if name in _LAX:
        return f"lax.{_LAX[name]}({', '.join(operands)})"
    if name in _REDUCE:
        return f"{operands[0]}.{_REDUCE[name]}(axis={tuple(params['axes'])})"
    if name in _SAME:
        return operands[0]
    if name == "slice":
        return f"{operands[0]}[{_slices(params)}]"
    if name == "select_n" and len(operands) == 3:
        return f"jnp.where({operands[0]}, {operands[2]}, {operands[1]})"
    if name in _PLAIN:
        return _PLAIN[name](params, *operands)
    if name.startswith("scatter"):
        how = {key: each for key, each in params.items() if not key.startswith("update_")}
        return f"lax.{name.replace('-', '_')}({', '.join(operands)}{_shown_by_name(how)})"
    return _bound(name, params, operands)


def _slices(params: dict[str, Any]) -> str:
    steps = params["strides"] or (1,) * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return ", ".join(f"{low}:{high}" + (f":{step}" if step != 1 else "") for low, high, step in bounds)


def _bound(name: str, params: dict[str, Any], operands: Sequence[str]) -> str:
    """Write the primitive itself, where there is no plainer form."""
    arrays = ", ".join(f"jnp.asarray({each})" for each in operands)
    where = "lax" if hasattr(lax, f"{name}_p") else "lax.linalg"
    return f"{where}.{name}_p.bind({arrays}{_shown_by_name(params)})"


def _shown_by_name(params: dict[str, Any]) -> str:
    return "".join(f", {key}={_shown(each)}" for key, each in params.items())


def _shown(value: Any) -> str:
    if isinstance(value, np.dtype | type):
        return _type(value)
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        inside = ", ".join(f"{k}={_shown(v)}" for k, v in zip(fields, value, strict=True))
        return f"lax.{type(value).__name__}({inside})"
    text = repr(value)
    if text.startswith(("GatherDimensionNumbers", "ScatterDimensionNumbers", "ConvDimensionNumbers")):
        return f"lax.{text}"
    if isinstance(value, Enum):
        return f"lax.{type(value).__name__}.{value.name}"
    return text


def _type(dtype: Any) -> str:
    name = np.dtype(dtype).name
    return "jnp.float64" if "float" in name else "bool" if name == "bool" else f"jnp.{name}"
