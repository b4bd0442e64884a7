"""One operation of a JAX program as an expression in Python: `jax.lax` has a function for most."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
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
          "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "and": "&", "or": "|", "add_any": "+",
          "integer_pow": "**"}  # fmt: skip
_SAME = frozenset(["stop_gradient", "copy", "optimization_barrier", "reduce_precision"])
_LISTS = frozenset(["concatenate", "dynamic_slice", "dynamic_update_slice"])
"""Primitives with an operand for each entry of a list that the function of that name takes."""


def jax_code(op: Operation, operands: Sequence[str]) -> list[str]:
    """Return the line that computes an operation; see `torch_code`.

    Raises:
        InputError: it is an operation between devices, draws numbers, or is none of `jax.lax`.
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
    if name in _INFIX and len(operands) == 2:
        return f"{operands[0]} {_INFIX[name]} {operands[1]}"
    if name in _SAME:
        return operands[0]
    function = name.replace("-", "_")
    given = {k: v for k, v in params.items() if v is not None and not k.startswith("update_")}
    if name not in _LISTS and _takes(getattr(lax, function, None), operands, given):
        return f"lax.{function}({', '.join([*operands, *_by_name(given)])})"
    where = next((each for each in ("lax", "lax.linalg") if _has(each, f"{name}_p")), None)
    if where is None:
        raise InputError(f"{op.source or name}: {name} is no operation of jax.lax, as programs need")
    arrays = [f"jnp.asarray({each})" for each in operands]
    return f"{where}.{name}_p.bind({', '.join([*arrays, *_by_name(params)])})"


def _takes(function: Any, operands: Sequence[str], params: dict[str, Any]) -> bool:
    """Return whether a function has a parameter for each operand, in order, and each of the others."""
    try:
        inspect.signature(function).bind(*operands, **params)
    except (TypeError, ValueError):
        return False
    return True


def _has(module: str, name: str) -> bool:
    return hasattr(lax if module == "lax" else lax.linalg, name)


def _by_name(params: dict[str, Any]) -> list[str]:
    return [f"{key}={_shown(each)}" for key, each in params.items()]


def _shown(value: Any) -> str:
    if isinstance(value, np.dtype | type):
        name = np.dtype(value).name
        return "jnp.float64" if "float" in name else "bool" if name == "bool" else f"jnp.{name}"
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
