"""A jaxpr computed by JAX instead of by the walk: every equation in float64, as the walk has it, and the
whole compiled at once.

The program's own types are not followed, as in the walk: types in parameters are widened, and
conversions to small ones leave numbers as they are. Everything else is JAX's own: each primitive, the
loops, the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from parity.measure.versions.of_jax import quick_flags, read_scan
from parity.verifier.programs.jaxprs.equations import bound, called_jaxpr
from parity.verifier.programs.jaxprs.sketches import sketched
from parity.verifier.programs.jaxprs.values import leaf_value, literal, rounding_of, widened

After = Callable[[Sequence[Any]], Sequence[Any]]
_UNCHANGED = frozenset(["optimization_barrier", "reduce_precision", "sharding_constraint"])
"""Primitives that say something of their operands and return them."""
SMALL = 1 << 20
"""Numbers given to a program, from which on it takes longer to run than to compile."""
_SILENT = frozenset(["debug_callback", "debug_print"])
_OUTSIDE = ("callback", "shard_map", "rng_uniform")
"""Parts of the names of primitives that cannot run twice alike: functions of the user's on the host,
devices that this machine need not have, and draws that nothing seeds."""


def runs_alike(jaxpr: Any) -> bool:
    """Return whether a program can be run once more, and would compute the same."""
    names = {each for each in _primitives(jaxpr) if each not in _SILENT}
    return not any(part in name for name in names for part in _OUTSIDE)


def _primitives(jaxpr: Any) -> Iterator[str]:
    """Yield the names of all primitives of a jaxpr and of those inside it."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn.primitive.name
        for value in eqn.params.values():
            for each in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(each, "jaxpr", each), "eqns"):
                    yield from _primitives(each)


def compiled(closed: Any, leaves: Sequence[Any], *, sketches: bool = False) -> Any:
    """Return a compiled function of a program's constants and leaves, one list after the other.

    Constants are arguments, or XLA would compute with them as it compiles. A small program is compiled
    quickly to slow code, which takes half the time in all. Leaves are given in the order in which they
    lie in memory, where JAX reads them without a copy.

    Args:
        closed: the traced program.
        leaves: arrays like those that it will be given.
        sketches: return of large outputs their sketches alone, so that they need no memory.
    """
    import jax

    orders = [_order_in_memory(each) for each in leaves]

    def in_memory(leaves: Sequence[Any]) -> list[Any]:
        return [
            each if order is None else each.transpose(order)
            for each, order in zip(leaves, orders, strict=True)
        ]

    def run(consts: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        leaves = [
            each if order is None else each.transpose(np.argsort(order))
            for each, order in zip(given, orders, strict=True)
        ]
        results = evaluated(closed.jaxpr, consts, leaves)
        return [sketched(each, jax.numpy) for each in results] if sketches else results

    given = constants_of(closed), in_memory(leaves)
    small = sum(np.size(each) for each in jax.tree.leaves(given)) < SMALL
    program = jax.jit(run).lower(*given).compile(compiler_options=quick_flags() if small else None)
    return lambda consts, leaves: program(consts, in_memory(leaves))


def _order_in_memory(array: Any) -> list[int] | None:
    """Return the axes of an array of numpy that lies in memory in another order than that of its axes;
    None for one in their order."""
    strides = getattr(array, "strides", ())
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return None if order == list(range(len(strides))) else order


def constants_of(closed: Any) -> list[Any]:
    """Return the arrays that a jaxpr holds, in float64 as the walk has them."""
    return [leaf_value(each) for each in getattr(closed, "consts", ())]


def evaluated(
    jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any], after: After | None = None
) -> list[Any]:
    """Compute a jaxpr with JAX, equation by equation, or trace it; `after` changes results before they
    are read, except inside loops."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return literal(atom.val) if hasattr(atom, "val") else env[atom]

    for eqn in jaxpr.eqns:
        if eqn.primitive.name not in _SILENT:
            results = equation(eqn, [read(each) for each in eqn.invars], after)
            env.update(zip(eqn.outvars, after(results) if after else results, strict=True))
    return [read(each) for each in jaxpr.outvars]


def equation(eqn: Any, operands: Sequence[Any], after: After | None = None) -> Sequence[Any]:
    """Compute one equation with JAX; see `evaluated`."""
    from jax import lax

    name, params = eqn.primitive.name, eqn.params
    if name in _UNCHANGED:
        return operands
    if name == "scan":
        return _scan(params, operands)
    if name == "while":
        return _while(params, operands)
    if name == "cond":
        branches = [lambda *x, of=each: _call(of, x) for each in params["branches"]]
        return lax.switch(operands[0], branches, *operands[1:])
    inner = called_jaxpr(eqn)
    if inner is not None:
        return _call(inner, operands, after)
    params = {key: widened(value) for key, value in params.items()}
    if "precision" in params:  # of products: types that factors are rounded to (BF16_BF16_F32), say
        params["precision"] = None
    if name == "bitcast_convert_type":
        (bits,) = operands  # those of the program's own type
        own, new = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
        seen = lax.bitcast_convert_type(lax.convert_element_type(bits, own), new)
        return [lax.convert_element_type(seen, params["new_dtype"]) if rounding_of(new) else seen]
    result = bound(eqn.primitive, params, operands)
    return result if eqn.primitive.multiple_results else [result]


def _call(inner: Any, operands: Sequence[Any], after: After | None = None) -> list[Any]:
    return evaluated(getattr(inner, "jaxpr", inner), constants_of(inner), operands, after)


def _scan(params: dict[str, Any], operands: Sequence[Any]) -> list[Any]:
    from jax import lax

    scan = read_scan(params)
    constants, carry = operands[: scan.constants], operands[scan.constants :][: scan.carried]
    rows = operands[scan.constants + scan.carried :]

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        out = _call(scan.body, [*constants, *carry, *row])
        return out[: scan.carried], out[scan.carried :]

    last, stacked = lax.scan(step, list(carry), list(rows), scan.length, scan.is_reverse)
    return [*last, *stacked]


def _while(params: dict[str, Any], operands: Sequence[Any]) -> list[Any]:
    from jax import lax

    of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
    condition, body = operands[:of_condition], operands[of_condition : of_condition + of_body]
    return lax.while_loop(
        lambda carry: _call(params["cond_jaxpr"], [*condition, *carry])[0],
        lambda carry: _call(params["body_jaxpr"], [*body, *carry]),
        list(operands[of_condition + of_body :]),
    )
