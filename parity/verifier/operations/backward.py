"""A model's gradients as a program: forward, a weighted sum of the output, and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.verifier.operations.callables import is_a
from parity.verifier.operations.output import cotangent, main_output
from parity.verifier.operations.program import Program

GRADIENT = "gradient"
"""What the path of an output begins with that is the gradient by a parameter."""


def record_gradients(
    model: Any,
    variables: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str,
    *,
    torch: bool,
) -> Program:
    """Record a model's main output, a loss, and its gradient by every parameter.

    The loss is the sum of the output, weighted by random numbers that are the same for the same shape.

    Args:
        variables: of a Linen module; of a plain function, the tuple of trees in front of its inputs.
        torch: whether it is a program of torch.

    Raises:
        InputError: it returns no tensor, or cannot be run.
    """
    if torch:
        from parity.verifier.operations.aten.side import record_side

        model = getattr(model, "_orig_mod", model)
        model = model.module() if type(model).__name__ == "ExportedProgram" else model
        held = (model, tuple(variables or ()))
        return record_side(_of_torch, (*held, *args), dict(kwargs), len(held), name, gradients=True)
    from parity.verifier.operations.jaxprs.side import record_side as record_jax_side

    *trees, call = _split(model, variables)

    def gradients(params: Any, rest: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        import jax

        def loss_of(params: Any) -> Any:
            _, output = main_output(call(params, rest, *args, **kwargs), _is_jax)
            weights = cotangent(output.shape).astype(output.dtype)
            return (output * weights).sum(), output

        (loss, output), found = jax.value_and_grad(loss_of, has_aux=True)(params)
        return {"output": output, "loss": loss, GRADIENT: found}

    return record_jax_side(gradients, None, (*trees, *args), dict(kwargs), len(trees), name)


def _of_torch(model: Any, trees: tuple[Any, ...], *args: Any, **kwargs: Any) -> dict[str, Any]:
    import torch

    from parity.verifier.operations.aten.context import named_tensors

    if isinstance(model, torch.nn.Module):  # a copy, see `record_side`
        model.eval()
        held = dict(model.named_parameters())
    else:
        held = {path: each for path, each in named_tensors(trees) if each.is_floating_point()}
    for each in held.values():
        each.requires_grad_(True)
    with torch.enable_grad():
        returned = model(*trees, *args, **kwargs)
        _, output = main_output(returned, lambda each: isinstance(each, torch.Tensor))
        weights = torch.from_numpy(cotangent(tuple(output.shape))).to(output.dtype)
        loss = (output * weights).sum()
        found = torch.autograd.grad(loss, list(held.values()), allow_unused=True)
    gradients = {
        path: torch.zeros_like(parameter) if gradient is None else gradient
        for (path, parameter), gradient in zip(held.items(), found, strict=True)
    }
    return {"output": output, "loss": loss, GRADIENT: gradients}


def _split(model: Any, variables: Any) -> tuple[Any, Any, Callable[..., Any]]:
    """Of a JAX model: what is differentiated, what it holds besides, and a function of both and of the
    inputs."""
    if is_a(model, "flax.linen"):
        rest = {name: part for name, part in variables.items() if name != "params"}

        def apply(params: Any, rest: Any, *args: Any, **kwargs: Any) -> Any:
            return model.apply({"params": params, **rest}, *args, **kwargs)

        return variables["params"], rest, apply
    if is_a(model, "flax.nnx"):
        from flax import nnx

        graph, params, state = nnx.split(model, nnx.Param, ...)

        def merged(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            whole = nnx.merge(graph, params, state)
            whole.eval()
            return whole(*args, **kwargs)

        return params, state, merged
    from parity.verifier.operations.jaxprs.side import arrays_of, functional

    call, held, _ = functional(model)
    of_function = held is None
    arrays, rebuild = arrays_of(tuple(variables or ())) if of_function else (held, None)
    floating = {path: each for path, each in arrays.items() if np.issubdtype(each.dtype, np.floating)}
    others = {path: each for path, each in arrays.items() if path not in floating}

    def filled(params: Any, rest: Any, *args: Any, **kwargs: Any) -> Any:
        own = {**params, **rest}
        return call(*rebuild(own), *args, **kwargs) if rebuild else call(own, *args, **kwargs)

    return floating, others, filled


def _is_jax(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array)
