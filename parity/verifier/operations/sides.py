"""From what a user gives to a recorded program: modules, functions, specifications."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.verifier.operations.program import Kind, Program
from parity.verifier.operations.sources import raised_at
from vit_config import InputError


def record(side: Any, name: str, *, gradients: bool = False, dtype: str | None = None) -> Program:
    """Run and record one side of a comparison.

    Args:
        side: ``(callable, inputs)``, ``(linen module, variables, inputs)``, a callable of no arguments,
            or ``"file.py:function"`` of a function that returns one of these. The callable is a
            torch.nn.Module, an nnx.Module, a function, a `functools.partial` or a callable pytree;
            inputs are one array, a tuple of them, or a dictionary by argument names.
        name: what the program is called.
        gradients: whether the callable computes gradients itself (a step of training): torch then
            records the backward pass too, with the lines of the forward operations. A torch.nn.Module
            among its arguments is copied, so that a step leaves the user's as it was.
        dtype: bfloat16, float16 or float32: round what the program holds to this type, and note the
            type that every operation then has; None for float64 throughout.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(side, str):
        from parity.verifier.diff.build import Order, build, called_function, is_function

        if is_function(side):
            side = called_function(side)()
        else:
            subject = build(Order(name=side))
            side = (subject.model, dict(subject.kwargs) or subject.args)
    function, *rest = side if isinstance(side, tuple) else (side,)
    variables = rest.pop(0) if _is_a(function, "flax.linen") and len(rest) == 2 else None
    if len(rest) > 1:
        raise InputError(f"{name}: expected (callable, inputs), found a tuple of {len(rest) + 1}")
    args, kwargs = _arguments(rest[0] if rest else ())
    fixed: list[tuple[str, Any]] = []
    while isinstance(function, functools.partial):
        fixed = [*((f"{i}", each) for i, each in enumerate(function.args)), *fixed]
        kwargs = {**function.keywords, **kwargs}
        args = (*function.args, *args)
        function = function.func
    if not callable(function):
        raise InputError(f"{name}: {type(function).__qualname__} cannot be called")
    try:
        if _is_torch(function, args, kwargs):
            return _record_torch(function, args, kwargs, len(fixed), name, gradients, dtype)
        return _record_jax(function, variables, args, kwargs, len(fixed), name, dtype)
    except Exception as error:
        line = raised_at(error)
        if line is None or isinstance(error, InputError):
            raise
        raise InputError(
            f"{name}: {type(error).__name__} in {line.file}:{line.line}: {error}"
        ) from error


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping) and all(isinstance(each, str) for each in inputs):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def _is_a(value: Any, package: str) -> bool:
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(value).__mro__)


def _is_torch(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if _is_a(function, "torch"):
        return True
    if _is_a(function, "flax"):
        return False
    leaves = [*_flat(args), *_flat(dict(kwargs))]
    if any(_is_a(each, "torch") for each in leaves):
        return True
    if any(_is_a(each, "jax") or _is_a(each, "jaxlib") for each in leaves):
        return False
    inner = inspect.unwrap(function)
    names = getattr(inner, "__globals__", {})
    used = getattr(getattr(inner, "__code__", None), "co_names", ())
    roots = {str(getattr(names.get(each), "__name__", "")).split(".")[0] for each in used}
    if "torch" in roots or "jax" in roots:
        return "torch" in roots and "jax" not in roots
    modules = {
        str(getattr(each, "__name__", "")).split(".")[0]
        for each in names.values()
        if inspect.ismodule(each)
    }
    return "torch" in modules and "jax" not in modules


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, Mapping):
        return [leaf for each in tree.values() for leaf in _flat(each)]
    if isinstance(tree, (tuple, list)):
        return [leaf for each in tree for leaf in _flat(each)]
    return [tree]


def _names(function: Any, count: int) -> list[str]:
    """Names of the positional arguments, where the signature tells."""
    try:
        parameters = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind < p.VAR_POSITIONAL
        ]
    except (TypeError, ValueError):
        parameters = []
    return [parameters[i] if i < len(parameters) else f"argument {i}" for i in range(count)]


def _kinds(args: tuple[Any, ...], fixed: int) -> list[Kind]:
    """A tree in front of the inputs holds parameters, and so do arguments that were bound before."""
    first = 1 if len(args) > 1 and not hasattr(args[0], "shape") and len(_flat(args[0])) > 1 else 0
    return ["parameter" if i < max(first, fixed) else "input" for i in range(len(args))]


def _record_torch(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fixed: int,
    name: str,
    gradients: bool,
    dtype: str | None,
) -> Program:
    import torch
    from torch.utils._pytree import tree_map

    from parity.verifier.operations.aten.record import named_tensors, record_torch
    from parity.verifier.operations.jaxprs.values import rounding_of

    wanted = torch.float64 if dtype is None else getattr(torch, dtype)
    epsilons: dict[int, float] = {}
    leaves: list[Any] = []
    modules: dict[int, str] = {}

    def wide(each: Any) -> Any:
        if isinstance(each, (np.ndarray, np.generic)) or _is_a(each, "jaxlib"):
            each = torch.from_numpy(np.array(each))
        if isinstance(each, torch.nn.Module):
            own = copy.deepcopy(each).to(wanted)
            modules.update((id(inner), path) for path, inner in own.named_modules())
            held = [*own.named_parameters(), *own.named_buffers()]
            before = [*each.parameters(), *each.buffers()]
            for (path, tensor), old in zip(held, before, strict=True):
                leaves.append(("parameter", path, tensor, rounding_of(old.dtype)))
            return own
        if not isinstance(each, torch.Tensor):
            return each
        epsilon = rounding_of(each.dtype)
        if each.is_floating_point():
            each = each.detach().to(wanted)
        epsilons[id(each)] = epsilon
        return each

    args, kwargs = tree_map(wide, args), tree_map(wide, kwargs)
    function = getattr(function, "_orig_mod", function)
    if hasattr(function, "module") and type(function).__name__ == "ExportedProgram":
        function = function.module()
    call: Callable[[], Any] = lambda: function(*args, **kwargs)  # noqa: E731
    restore: list[tuple[Any, bool]] = []
    if isinstance(function, torch.jit.ScriptModule):
        function = wide(function)  # cannot be called with other parameters than its own
        call = lambda: function(*args, **kwargs)  # noqa: E731
        function_of_names = function.forward
    elif isinstance(function, torch.nn.Module):
        held = {**dict(function.named_parameters()), **dict(function.named_buffers())}
        shared: dict[int, Any] = {}
        state = {path: shared.setdefault(id(each), wide(each)) for path, each in held.items()}
        leaves += [("parameter", path, each, epsilons[id(each)]) for path, each in state.items()]
        modules = {id(each): path for path, each in function.named_modules()}
        restore = [(each, each.training) for each in function.modules()]
        call = lambda: torch.func.functional_call(function, state, args, kwargs)  # noqa: E731
        function_of_names = function.forward
    else:
        function_of_names = function
    kinds = _kinds(args, fixed)
    for kind, label, value in zip(kinds, _names(function_of_names, len(args)), args, strict=True):
        leaves += [
            (kind, ".".join(filter(None, (label, path))), each, epsilons.get(id(each), 0.0))
            for path, each in named_tensors(value)
        ]
    for key, value in kwargs.items():
        leaves += [
            ("input", ".".join(filter(None, (key, p))), each, 0.0) for p, each in named_tensors(value)
        ]
    try:
        for module, _ in restore:
            module.training = False
        return record_torch(call, leaves, name, modules, gradients=gradients, as_it_is=dtype is not None)
    finally:
        for module, training in restore:
            module.training = training


def _record_jax(
    function: Any,
    variables: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fixed: int,
    name: str,
    dtype: str | None,
) -> Program:
    from parity.verifier.operations.jaxprs.record import record_jax

    trees: list[tuple[Kind, str, Any]] = []
    if _is_a(function, "flax.linen"):
        inner = function.apply
        trees.append(("parameter", "", variables))
        names = _names(function.__call__, len(args))
    elif _is_a(function, "flax.nnx"):
        inner, state = _nnx(function)
        trees.append(("parameter", "", state))
        names = _names(function.__call__, len(args))
    elif _is_array_tree(function):
        import jax

        leaves, structure = jax.tree.flatten(function)
        held = {i: leaf for i, leaf in enumerate(leaves) if _is_array(leaf)}
        paths = [".".join(map(_entry, p)) for p, _ in jax.tree_util.tree_leaves_with_path(function)]

        def inner(arrays: dict[str, Any], *a: Any, **k: Any) -> Any:
            filled = [arrays[paths[i]] if i in held else leaf for i, leaf in enumerate(leaves)]
            return jax.tree.unflatten(structure, filled)(*a, **k)

        trees.append(("parameter", "", {paths[i]: leaf for i, leaf in held.items()}))
        names = _names(type(function).__call__, len(args) + 1)[1:]
    else:
        inner = function
        names = _names(function, len(args))
    before = len(trees)
    static: dict[int | str, Any] = {}
    for position, (kind, label, value) in enumerate(zip(_kinds(args, fixed), names, args, strict=True)):
        dynamic, rebuild = _partition(value)
        static[position] = rebuild
        trees.append((kind, label, dynamic))
    for key, value in kwargs.items():
        dynamic, rebuild = _partition(value)
        static[key] = rebuild
        trees.append(("input", key, dynamic))

    def call(*values: Any) -> Any:
        own, given = values[:before], values[before:]
        positional = [static[i](given[i]) for i in range(len(args))]
        named = {key: static[key](given[len(args) + i]) for i, key in enumerate(kwargs)}
        return _only_arrays(inner(*own, *positional, **named))

    return record_jax(call, trees, name, dtype)


def _nnx(model: Any) -> tuple[Callable[..., Any], Any]:
    from flax import nnx

    graph, state = nnx.split(model)

    def call(state: Any, *args: Any, **kwargs: Any) -> Any:
        merged = nnx.merge(graph, state)
        merged.eval()
        return merged(*args, **kwargs)

    return call, state


def _entry(entry: Any) -> str:
    return str(next((getattr(entry, a) for a in ("key", "name", "idx") if hasattr(entry, a)), entry))


def _is_array(value: Any) -> bool:
    import jax

    if _is_a(value, "torch"):
        raise InputError("a torch tensor was given to a JAX program; give numpy arrays")
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def _is_array_tree(function: Any) -> bool:
    if inspect.isroutine(function) or isinstance(function, type):
        return False
    import jax

    leaves = jax.tree.leaves(function)
    return leaves != [function] and any(map(_is_array, leaves))


def _partition(value: Any) -> tuple[list[Any] | Any, Callable[[Any], Any]]:
    """The arrays of a tree, and how to put them back beside its flags and numbers."""
    import jax

    leaves, structure = jax.tree.flatten(value)
    if all(map(_is_array, leaves)):
        return value, lambda tree: tree
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]

    def rebuild(arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        return jax.tree.unflatten(structure, filled)

    return [leaves[i] for i in places], rebuild


def _only_arrays(result: Any) -> Any:
    import jax

    if all(isinstance(leaf, (jax.Array, np.ndarray, float, int)) for leaf in jax.tree.leaves(result)):
        return result
    found = jax.tree_util.tree_leaves_with_path(result)
    return {
        ".".join(map(_entry, p)): leaf for p, leaf in found if isinstance(leaf, (jax.Array, np.ndarray))
    }
