"""One equation of a jaxpr: how it runs again, and what is known of it besides its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parity.measure.versions import of_jax
from parity.verifier.programs.jaxprs.values import lowered
from parity.verifier.programs.pools import POOL, pool_of_jax
from parity.verifier.programs.windows import WINDOW, transform_of_jax, window_of_jax


def apply_rule(function: Callable[..., Any], params: dict[str, Any], operands: Sequence[Any]) -> Any:
    """Run a primitive in numpy."""
    with np.errstate(all="ignore"):
        result = function(params, *(np.asarray(each) for each in operands))
    return (
        [np.asarray(each) for each in result]
        if isinstance(result, (list, tuple))
        else np.asarray(result)
    )


def apply_power(function: Callable[..., Any], params: dict[str, Any], operands: Sequence[Any]) -> Any:
    """Run an integer power, whose exponent is the second operand."""
    return apply_rule(function, params | {"y": operands[1]}, operands[:1])


def pick(number: int, operands: Sequence[Any]) -> Any:
    """Return one of several results."""
    return operands[0][number]


def row_of(number: int, operands: Sequence[Any]) -> Any:
    """Return one step's part of what a scan runs over."""
    return operands[0][number]


def stack(operands: Sequence[Any]) -> Any:
    """Stack what the steps of a scan put out."""
    return np.stack([np.asarray(each) for each in operands])


SCATTERS = {
    f"scatter-{how}": f"scatter_{how}" for how in ("add", "sub", "mul", "min", "max")
} | {"scatter": "scatter_apply"}  # fmt: skip
"""Primitives whose parameters may hold a function of the types that they were traced with, and JAX's own
functions that make it anew."""


def bind(primitive: Any, params: dict[str, Any], operands: Sequence[Any]) -> Any:
    """Run a primitive as JAX does, in float64."""
    import jax

    with jax.enable_x64(True):
        result = bound(primitive, params, operands)
    return [lowered(r) for r in result] if primitive.multiple_results else lowered(result)


def bound(primitive: Any, params: dict[str, Any], operands: Sequence[Any]) -> Any:
    """Bind a primitive to operands, which may be traced."""
    from jax import numpy as jnp

    arrays = map(jnp.asarray, operands)
    if params.get("update_jaxpr") is not None:
        return _scatter(primitive.name, params, *arrays)
    return primitive.bind(*arrays, **primitive.get_bind_params(params))


def _scatter(name: str, params: dict[str, Any], operand: Any, indices: Any, updates: Any) -> Any:
    """Scatter by a function of two numbers, or of one, which is applied where an index points to."""
    from jax import lax
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

    given = {key: value for key, value in params.items() if not key.startswith("update_")}
    if name != "scatter":
        return getattr(lax, SCATTERS[name])(operand, indices, updates, **given)
    of_two = jaxpr_as_fun(ClosedJaxpr(params["update_jaxpr"], params["update_consts"]))
    given["update_shape"] = updates.shape
    return lax.scatter_apply(operand, indices, lambda each: of_two(each, each)[0], **given)


def called_jaxpr(eqn: Any) -> Any:
    """Return the jaxpr that an equation calls on its operands; None where it calls none, or calls one on
    pairs of their numbers, as a reduction by a function of the user's does."""
    given = (eqn.params.get(name) for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"))
    inner = next((each for each in given if each is not None), None)
    jaxpr = getattr(inner, "jaxpr", inner)
    if jaxpr is None:
        return None
    ends = ((jaxpr.invars, eqn.invars), (jaxpr.outvars, eqn.outvars))
    return inner if all(_shapes(own) == _shapes(outer) for own, outer in ends) else None


def _shapes(atoms: Sequence[Any]) -> list[Any]:
    return [getattr(each.aval, "shape", None) for each in atoms]


def keeps_numbers(eqn: Any) -> bool:
    """Return whether a conversion is between types of one kind."""
    kinds = [getattr(each.aval.dtype, "name", "") for each in (eqn.invars[0], eqn.outvars[0])]
    return all("float" in each for each in kinds) or all("int" in each for each in kinds)


_ATTRIBUTES = {"axes": "axis", "axis": "axis", "dimension": "axis", "permutation": "axes",
               "y": "exponent",
               "start_indices": "start", "limit_indices": "limit", "new_dtype": "to"}  # fmt: skip
"""Parameters of equations that a formula shows."""


def attributes(name: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a formula shows of a primitive besides its operands, and what causes read of it."""
    params = {each: _of_python(value) for each, value in params.items()}
    extra: dict[str, Any] = {"primitive": name, "params": params}
    if name == "conv_general_dilated":
        window = window_of_jax(params)
        return window.text, {**extra, WINDOW: window}
    pool = pool_of_jax(name, params)
    if pool is not None:
        return pool[0].text, {**extra, POOL: pool}
    if name == "fft":
        return transform_of_jax(params), extra
    shown = (f"{_ATTRIBUTES[k]}={plain(params[k])}" for k in params if k in _ATTRIBUTES)
    return ", ".join(shown), extra


def _of_python(value: Any) -> Any:
    """Return numpy's whole numbers, which users compute sizes with, as Python's; all else as it is."""
    if type(value) is tuple:
        return tuple(map(_of_python, value))
    return int(value) if isinstance(value, np.integer) else value


def plain(value: Any) -> str:
    """Write a parameter of an equation as a formula shows it."""
    if isinstance(value, tuple):
        return str(value[0]) if len(value) == 1 else str(tuple(value)).replace(" ", "")
    return getattr(value, "name", str(value))


def jaxprs_in(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among an equation's parameters."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(getattr(each, "jaxpr", each), "eqns"):
                yield each


def last_reads(jaxpr: Any) -> dict[int, list[Any]]:
    """Return, by the number of an equation, the variables that no later equation reads."""
    last: dict[Any, int] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        for each in eqn.invars:
            if not hasattr(each, "val"):
                last[each] = number
    for each in jaxpr.outvars:
        last.pop(each, None) if not hasattr(each, "val") else None
    ending: dict[int, list[Any]] = {}
    for variable, number in last.items():
        ending.setdefault(number, []).append(variable)
    return ending


_TRANSFORMED = re.compile(r"\b(?:transpose|jvp|vmap)\(")


def modules_of(eqn: Any) -> str:
    """Return the path of Flax modules in the stack of names: "transpose(jvp(Block_0))/attn" without the
    transformations."""
    stack = _TRANSFORMED.sub("", str(eqn.source_info.name_stack)).replace("/", ".")
    parts = [part if "(" in part else part.rstrip(")") for part in stack.split(".")]
    return ".".join(p for p in parts if p.isidentifier() or p.isdigit())


def written_by_jax(inner: Any) -> bool:
    """Return whether a called function is JAX's own."""
    return of_jax.is_of_jax(of_jax.file_of(getattr(inner, "jaxpr", inner)))
