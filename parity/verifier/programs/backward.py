"""A program's gradients as a program: forward, a weighted sum of the outputs, and backward."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.verifier.programs.callables import is_a, map_arrays
from parity.verifier.programs.held import is_module
from parity.verifier.programs.memory import check
from parity.verifier.programs.program import TRAINING, Program
from parity.verifier.programs.sides import GivenSide
from vit_config import InputError

if TYPE_CHECKING:
    from parity.verifier.programs.aten.held import HeldByTorch
    from parity.verifier.programs.jaxprs.held import Holding

GRADIENT = "gradient"
"""First part of the path of an output that is the gradient of a leaf: a parameter or an input."""

FORWARD = ", compare the forward passes alone (--forward, backward=False)"
"""The way out where the gradients do not fit into memory."""

Weights = Sequence[tuple[int, np.ndarray]]
"""Outputs to sum, by position, and the weight of each of their numbers."""

NOTHING = "no output of floating point numbers depends on anything that could be changed"


def record_gradients(given: GivenSide, weights: Weights, name: str) -> Program:
    """Record a program's gradients by every parameter and every input of floating point numbers.

    Args:
        given: the program.
        weights: weights of its outputs, in the order in which it returns them.
        name: what the program is called.

    Raises:
        InputError: there is nothing to differentiate, or no memory for it.
    """
    if not weights:
        raise InputError(NOTHING)
    for each in given.backward:
        check(each, f"{given.name}: recording its gradients", FORWARD)
    program = _recorded(given, weights, name)
    program.notes = [each for each in program.notes if not each.startswith(TRAINING)]  # said before
    return program


def _recorded(given: GivenSide, weights: Weights, name: str) -> Program:
    model, args, kwargs = given.function, given.args, given.kwargs
    trees, inputs = args[: given.trees], args[given.trees :]
    if given.torch:
        from parity.verifier.programs.aten.held import HeldByTorch
        from parity.verifier.programs.aten.side import record_side

        model = getattr(model, "_orig_mod", model)
        model = model.module() if type(model).__name__ == "ExportedProgram" else model
        copied = model if is_module(model) else None
        held = HeldByTorch(model)
        gradients, those = (
            _of_torch(weights, None if copied is not None else model, held),
            (copied, trees),
        )
        program = record_side(gradients, (*those, *inputs), kwargs, 2, name, gradients=True, held=held)
        return _without_unused(program, held.tensors())
    from parity.verifier.programs.jaxprs.held import HeldByJax, Holding
    from parity.verifier.programs.jaxprs.side import record_side as record_jax_side

    held = HeldByJax(model, args[: given.bound])
    with held.evaluating():
        params, rest, call = _split(model, given.variables, trees)
        holding = Holding(held, (params, rest))
        gradients, those = _of_jax(weights, call, holding), (params, rest, *inputs)
        program = record_jax_side(gradients, None, those, kwargs, 2, name, closed_over=holding)
    return _without_unused(program, holding.arrays)


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """A random weight for each number of the output; the loss is their sum. The same for the same
    shape."""
    stream = np.random.default_rng(zlib.crc32(repr(tuple(shape)).encode()))
    return stream.standard_normal(shape)


def _of_torch(weights: Weights, function: Any, held: HeldByTorch) -> Callable[..., Any]:
    import torch

    from parity.verifier.programs.aten.context import named_tensors, outputs_of

    def floating(tree: Any) -> dict[str, torch.Tensor]:
        return {path: each for path, each in named_tensors(tree) if each.is_floating_point()}

    def gradients(model: Any, trees: tuple[Any, ...], *args: Any, **kwargs: Any) -> dict[str, Any]:
        if model is not None:  # a copy, see `record_side`
            model.eval()
            leaves = floating(dict(model.named_parameters()))
        else:
            leaves = floating(trees) | floating(held.tensors())
        for position, each in enumerate(args, 2):
            named = named_tensors(each, f"argument {position}")
            leaves |= {path: tensor for path, tensor in named if tensor.is_floating_point()}
        leaves |= floating(kwargs)
        for each in leaves.values():
            each.requires_grad_(True)

        def own(each: Any) -> Any:
            """Return an input that may be written to."""
            return each.clone() if isinstance(each, torch.Tensor) and each.requires_grad else each

        with torch.enable_grad():
            args, kwargs = map_arrays(own, args), map_arrays(own, kwargs)
            returned = (function if model is None else model)(*trees, *args, **kwargs)
            outputs: list[torch.Tensor] = [each for _, each in outputs_of(returned)]
            terms = [(outputs[k] * torch.from_numpy(w).to(outputs[k].dtype)).sum() for k, w in weights]
            loss = sum(terms[1:], terms[0])
            if not loss.requires_grad:
                raise InputError(NOTHING)
            derivatives = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        pairs = zip(leaves.items(), derivatives, strict=True)
        return {
            GRADIENT: {path: torch.zeros_like(leaf) if g is None else g for (path, leaf), g in pairs}
        }

    return gradients


def _of_jax(weights: Weights, call: Callable[..., Any], holding: Holding) -> Callable[..., Any]:
    import jax

    from parity.verifier.programs.jaxprs.lifted import Lifted
    from parity.verifier.programs.jaxprs.side import only_numbers

    def gradients(arrays: dict[str, Any], params: Any, rest: Any, *args: Any, **kwargs: Any) -> Any:
        named, structure = jax.tree_util.tree_flatten_with_path((args, kwargs))
        leaves = [leaf for _, leaf in named]
        own = {
            i: leaf
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, jax.Array) and _is_floating(leaf)
        }

        def outputs_of(given: tuple[Any, dict[int, Any]]) -> list[Any]:
            params, own = given
            filled = [own.get(i, leaf) for i, leaf in enumerate(leaves)]
            args, kwargs = jax.tree.unflatten(structure, filled)
            returned = jax.tree.leaves(only_numbers(call(params, rest, *args, **kwargs)))
            return [*map(jax.numpy.asarray, returned)]  # a number of Python's has no type

        lifted = Lifted(outputs_of, (params, own), holding) if arrays else None
        met = {path: arrays[path] for path in lifted.paths} if lifted else {}
        if not jax.tree.leaves(params) and not own and not met:
            raise InputError(NOTHING)

        def loss_of(params: Any, own: dict[int, Any], met: dict[str, Any]) -> Any:
            given = params, own
            outputs = lifted(met, given) if lifted and met else outputs_of(given)
            return sum((outputs[k] * w.astype(outputs[k].dtype)).sum() for k, w in weights)

        of_params, of_inputs, of_held = jax.grad(loss_of, argnums=(0, 1, 2))(params, own, met)
        labels = {i: _label(named[i][0]) for i in own}
        inputs = {labels[i]: of_inputs[i] for i in own}
        return {GRADIENT: {**of_held, "params": of_params, "inputs": inputs}}

    return gradients


def _without_unused(program: Program, paths: Collection[str]) -> Program:
    """Make constants of the arrays, by their paths, that the program does not read: a function need not
    use all that it holds."""
    readers, ends = program.consumers(), dict(program.outputs)
    for op in program.operations:
        if op.run is not None or op.label not in paths:
            continue
        path = f"{GRADIENT}.{op.label}"
        reading = {program.operations[each].name for each in readers[op.index]}
        if path not in ends or reading <= {"zeros_like"}:
            op.kind = "constant"
            program.outputs = [each for each in program.outputs if each[0] != path]
    return program


def _label(keys: Sequence[Any]) -> str:
    """Return the label of an input, given its keys in ``(args, kwargs)``."""
    from parity.verifier.programs.jaxprs.side import path_of

    group, first, *rest = keys
    inner = path_of(rest)
    return path_of([first, *rest]) if group.idx else f"argument {first.idx + 2}.{inner}".rstrip(".")


def _split(model: Any, variables: Any, trees: tuple[Any, ...]) -> tuple[Any, Any, Callable[..., Any]]:
    """Split a JAX model into what is differentiated, what else it holds, and a function of both and of
    the inputs."""
    if is_a(model, "flax.linen"):
        rest = {name: part for name, part in variables.items() if name != "params"}

        def apply(params: Any, rest: Any, *args: Any, **kwargs: Any) -> Any:
            return model.apply({"params": params, **rest}, *trees, *args, **kwargs)

        return variables.get("params", {}), rest, apply
    if is_module(model):
        from flax import nnx

        from parity.measure.traces.watch_jax import named_nnx

        graph, params, state = nnx.split(model, nnx.Param, ...)

        def merged(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            whole = nnx.merge(graph, params, state, copy=True)  # for they are of an outer trace
            whole.eval()
            with named_nnx(whole):
                return whole(*trees, *args, **kwargs)

        return params, state, merged
    from parity.verifier.programs.jaxprs.side import arrays_of, functional

    call, held, _ = functional(model)
    of_function = held is None
    arrays, rebuild = arrays_of(trees) if of_function else (held, None)
    floating = {path: each for path, each in arrays.items() if _is_floating(each)}
    others = {path: each for path, each in arrays.items() if path not in floating}

    def filled(params: Any, rest: Any, *args: Any, **kwargs: Any) -> Any:
        own = {**params, **rest}
        return call(*rebuild(own), *args, **kwargs) if rebuild else call(own, *trees, *args, **kwargs)

    return floating, others, filled


def _is_floating(value: Any) -> bool:
    from jax import numpy as jnp

    return bool(jnp.issubdtype(value.dtype, jnp.floating))
