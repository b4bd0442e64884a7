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
"""How many steps away from the function to look; what is inside of a container is no step further."""


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
        further = depth if _is_container(value) else depth + 1
        parts = [(f"{name}.{key}".strip("."), each, further) for key, each in _inside(value)]
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


def _is_container(value: Any) -> bool:
    """Return whether a value only holds others together, or wraps another."""
    kinds = (Mapping, list, tuple, functools.partial)
    made = is_dataclass(value) and not isinstance(value, type)
    return isinstance(value, kinds) or made or (not inspect.isfunction(value) and _wraps(value))


def _wraps(value: Any) -> bool:
    return not isinstance(value, type) and _has(value, "__wrapped__")


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, one step further; names are empty where the program has none."""
    if isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), each) for i, each in enumerate(value))
    elif isinstance(value, functools.partial):
        yield "", value.func
        yield from ((str(i) if len(value.args) > 1 else "", e) for i, e in enumerate(value.args))
        yield from value.keywords.items()
    elif inspect.ismethod(value):
        yield from (("", each) for each in (value.__self__, value.__func__))
    elif inspect.isfunction(value):
        yield from _of_function(value)
    elif _has(value, "__wrapped__"):
        yield "", value.__wrapped__
    elif is_a(value, "keras") and _has(value, "variables"):
        yield from ((each.path.replace("/", "."), each) for each in value.variables)
    elif is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if _has(value, each.name)]
        yield from ((name, getattr(value, name)) for name in names)
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
    package = str(function.__globals__.get("__name__", "")).partition(".")[0]
    for name in () if package in (*_FRAMEWORKS, *_LIBRARIES) else _names(function.__code__):
        if name in function.__globals__ and not inspect.ismodule(function.__globals__[name]):
            yield name, function.__globals__[name]
    defaults = function.__defaults__ or ()
    code = function.__code__
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    yield from zip(names, defaults, strict=True)
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
_LIBRARIES = ("equinox", "haiku", "keras")
"""Packages whose objects hold a user's parameters, and whose functions read none."""
