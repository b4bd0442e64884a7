"""Inspecting what a user gives to be compared: its framework and its arguments."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from parity.verifier.programs.methods import as_module
from parity.verifier.programs.operation import Kind


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments, given one array, a tuple of them, or a dictionary."""
    if isinstance(inputs, Mapping) and all(isinstance(each, str) for each in inputs):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def unwrapped(function: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any], int]:
    """Return a partial's function with all of its arguments, and how many of these were bound before;
    for a module's method, the module."""
    bound = 0
    while isinstance(function, functools.partial):
        bound += len(function.args)
        kwargs = {**function.keywords, **kwargs}
        args = (*function.args, *args)
        function = function.func
    if _is_cached_partial(function):
        held = inspect.getclosurevars(function).nonlocals
        return unwrapped(functools.partial(held["f"], *held["cached_args"]), args, kwargs)
    return as_module(function), args, kwargs, bound


def _is_cached_partial(function: Any) -> bool:
    """Return whether a function is what `nnx.cached_partial` makes of one and of its first arguments."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_name == "cache_args_wrapper" and "/flax/" in code.co_filename


def is_a(value: Any, package: str) -> bool:
    """Return whether a value is of a class of a package, or of one that extends such a class."""
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(value).__mro__)


def is_torch(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a callable is a program of torch, by its class, its inputs, and what it names."""
    if is_a(function, "torch"):
        return True
    if is_a(function, "flax"):
        return False
    leaves = [*leaves_of(args), *leaves_of(dict(kwargs))]
    if any(is_a(each, "torch") for each in leaves):
        return True
    if any(is_a(each, package) for each in leaves for package in JAX):
        return False
    inner = inspect.unwrap(function)
    names = getattr(inner, "__globals__", {})
    used = [names.get(each) for each in getattr(getattr(inner, "__code__", None), "co_names", ())]
    for values in (used, names.values()):  # what it names itself, then what its file does
        roots = {_root(each) for each in values if inspect.ismodule(each)}
        if "torch" in roots or roots & JAX:
            return "torch" in roots and not roots & JAX
    return False


JAX = frozenset(["jax", "jaxlib", "flax", "optax", "equinox", "haiku", "keras"])
"""Packages whose programs are JAX's."""


def _root(module: Any) -> str:
    return str(module.__name__).partition(".")[0]


def leaves_of(tree: Any) -> list[Any]:
    """Return the leaves of nested dictionaries, tuples, lists and dataclasses."""
    if isinstance(tree, Mapping):
        return [leaf for each in tree.values() for leaf in leaves_of(each)]
    if isinstance(tree, (tuple, list)):
        return [leaf for each in tree for leaf in leaves_of(each)]
    if is_record(tree):
        return [leaf for each in fields(tree) for leaf in leaves_of(getattr(tree, each.name))]
    return [tree]


def numbers_of(value: Any) -> np.ndarray | None:
    """Return numbers of Python, of NumPy or of JAX as an array; None for anything else."""
    kinds = (bool, int, float, complex, np.generic, np.ndarray)
    if not isinstance(value, kinds) and not is_a(value, "jaxlib"):
        return None
    array = np.asarray(value)
    return array if array.dtype.kind in "biuc" or is_floating(array) else None


def is_floating(array: np.ndarray) -> bool:
    """Return whether an array holds floating point numbers, also of a type that NumPy lacks."""
    return "float" in array.dtype.name


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that may hold what a program computed; none of a text, a
    function, a class or an iterator."""
    if isinstance(value, (str, bytes, type, Iterator)) or callable(value) or is_cache(value):
        return {}
    return dict(getattr(value, "__dict__", {}))


def is_cache(value: Any) -> bool:
    """Return whether a value is transformers' store of keys and values for the next call, which a model
    returns beside its outputs."""
    return is_a(value, "transformers") and any(base.__name__ == "Cache" for base in type(value).__mro__)


def described(path: str, value: Any) -> str:
    """Describe something without numbers that a program returns, such as "cache, of class Cache"."""
    return f"{path or 'output'}, of class {type(value).__name__}"


def is_record(value: Any) -> bool:
    """Return whether a value is a dataclass that can hold inputs; a callable one, a module, cannot."""
    return is_dataclass(value) and not isinstance(value, type) and not callable(value)


def map_arrays(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with its leaves changed; dataclasses are copied."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_arrays(change, each) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_arrays(change, each) for each in tree)
    if is_record(tree):
        made = copy.copy(tree)
        for each in fields(tree):
            object.__setattr__(made, each.name, map_arrays(change, getattr(tree, each.name)))
        return made
    if isinstance(tree, MutableMapping):
        made = copy.copy(tree)
        for key, each in tree.items():
            made[key] = map_arrays(change, each)
        return made
    return change(tree)


def argument_names(function: Any, count: int) -> list[str]:
    """Return the names of the positional arguments; "argument 0" where the signature has none."""
    try:
        parameters = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind < p.VAR_POSITIONAL
        ]
    except (TypeError, ValueError):
        parameters = []
    return [parameters[i] if i < len(parameters) else f"argument {i}" for i in range(count)]


def kinds_of(args: tuple[Any, ...], fixed: int) -> list[Kind]:
    """Return the kind of each argument: a tree in front of the inputs, or what was bound before, holds
    parameters."""
    first = 1 if len(args) > 1 and not hasattr(args[0], "shape") and len(leaves_of(args[0])) > 1 else 0
    return ["parameter" if i < max(first, fixed) else "input" for i in range(len(args))]
