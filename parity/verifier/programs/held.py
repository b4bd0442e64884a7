"""Modules and arrays that a function uses without being given them: in its closure, file or defaults."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CodeType
from typing import Any

from parity.verifier.programs.callables import is_a

DEEPEST = 6
"""How many steps away from the function to look."""


def held_by(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules and the arrays that a function reaches by itself, with names; each once."""
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [("", function, 0)]
    while stack:
        name, value, depth = stack.pop()
        if id(value) in seen or depth > DEEPEST:
            continue
        seen.add(id(value))
        if is_module(value) or _is_array(value):
            yield name, value
            continue
        parts = [(f"{name}.{key}".strip("."), each, depth + 1) for key, each in _inside(value)]
        stack += parts[::-1]


def is_module(value: Any) -> bool:
    """Return whether something is a module of torch's or of NNX."""
    return any(
        f"{base.__module__}.{base.__name__}"
        in ("torch.nn.modules.module.Module", "flax.nnx.module.Module")
        for base in type(value).__mro__
    )


def _is_array(value: Any) -> bool:
    return _has(value, "shape") and _has(value, "dtype")


def _has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except ImportError:  # a module that loads when it is used, of a library that is not installed
        return False


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, one step further; names are empty where the program has none."""
    if isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), each) for i, each in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from (("", each) for each in (value.func, *value.args, *value.keywords.values()))
    elif inspect.ismethod(value):
        yield from (("", each) for each in (value.__self__, value.__func__))
    elif inspect.isfunction(value):
        yield from _of_function(value)
    elif _has(value, "__wrapped__"):
        yield "", value.__wrapped__
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((each.name, getattr(value, each.name)) for each in fields(value))
    elif _is_users(value):
        yield from vars(value).items()


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(function, "__wrapped__"):
        yield "", function.__wrapped__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is assigned later
            continue
    for name in _names(function.__code__):
        if name in function.__globals__ and not inspect.ismodule(function.__globals__[name]):
            yield name, function.__globals__[name]
    yield from (("", each) for each in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function reads, and those that functions inside it read."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _is_users(value: Any) -> bool:
    """Return whether something is of a class that no framework made."""
    made = hasattr(value, "__dict__") and not isinstance(value, type) and not inspect.ismodule(value)
    return made and not inspect.isbuiltin(value) and not any(is_a(value, each) for each in _FRAMEWORKS)


_FRAMEWORKS = ("torch", "jax", "jaxlib", "flax", "optax", "numpy")
