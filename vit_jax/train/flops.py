"""FLOPs of the matrix products in a traced program, counted before any compiler changes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def count_flops(jaxpr: Any) -> int:
    """Count two FLOPs for each multiply-add of products and convolutions, on all devices together.

    Args:
        jaxpr: as `jax.stages.Traced.jaxpr` has it; a loop of known length counts as often as it runs,
            others once.
    """
    jaxpr, total = getattr(jaxpr, "jaxpr", jaxpr), 0
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval
            total += 2 * math.prod(out.shape) * math.prod(shape[axis] for axis in contracted)
        elif name == "conv_general_dilated":
            kernel, numbers = eqn.invars[1].aval.shape, eqn.params["dimension_numbers"]
            outputs, out = kernel[numbers.rhs_spec[0]], eqn.outvars[0].aval
            total += 2 * math.prod(out.shape) * math.prod(kernel) // outputs
        else:
            times = eqn.params["length"] if name == "scan" else 1
            total += times * sum(map(count_flops, _inner(eqn.params)))
    return total


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """Yield the programs that an operation runs."""
    for value in params.values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if hasattr(getattr(each, "jaxpr", each), "eqns"):
                yield each
