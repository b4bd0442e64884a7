"""The interface through which a watched model, of either framework, reports its tensors."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

from parity.measure.site import Where


class Tap(Protocol):
    """Observer of every tensor that enters or leaves a module."""

    def begin(self, path: str, module: Any) -> int:
        """Begin a call of a module; return its number, counted from 0."""
        ...

    def tensor(self, where: Where, value: Any) -> Any:
        """See a tensor; return its replacement."""
        ...

    def end(self, path: str) -> None:
        """End a call of a module; not called when an exception ended it."""
        ...


RATES = ("p", "rate", "drop_prob")
"""Names of the rate of dropout."""


def is_main(port: str) -> bool:
    """Return whether a port is a module's first input, or an output that has no name."""
    return re.fullmatch(r"in|out(\[\d+\])?", port) is not None


def kind_of(module: Any) -> str:
    """Return the class of a module, with its Python module."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def drops(module: Any) -> bool:
    """Return whether a module leaves out values at random, by its class and its rate."""
    rate = next((vars(module)[each] for each in RATES if each in vars(module)), None)
    return "drop" in type(module).__name__.lower() and rate != 0


def facts_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that JSON can hold: numbers, texts, truth values, lists, function names."""
    facts = {name: _plain(value) for name, value in attributes.items() if not name.startswith("_")}
    return {name: value for name, value in facts.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (tuple, list)) and 0 < len(value) <= 16:
        parts = [_plain(part) for part in value]
        return None if None in parts else parts
    if isinstance(value, functools.partial):
        options = ", ".join(f"{name}={option!r}" for name, option in value.keywords.items())
        return f"{_plain(value.func)}({options})"
    if isinstance(value, Callable) and hasattr(value, "__name__"):
        return value.__name__
    return None


Visit = Callable[[str, Any], Any]
"""Function of an array's port and the array; returns the array's replacement."""


def visit_arrays(value: Any, port: str, is_array: Callable[[Any], bool], visit: Visit) -> Any:
    """Call `visit` for every array in a value, in order; return the value with the results in place.

    Ports are ``out`` for a bare array, ``out[1]`` in a tuple or list, ``out.name`` in named fields.
    A value not known to hold arrays is returned as it is, and so is everything that did not change.
    """

    def below(part: Any, step: str) -> Any:
        return visit_arrays(part, port + step, is_array, visit)

    if is_array(value):
        return visit(port, value)
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)) is not None:
        new = [below(part, f".{name}") for name, part in zip(names, value, strict=True)]
        return value if _same(new, value) else type(value)(*new)
    if isinstance(value, (tuple, list)):
        new = [below(part, f"[{i}]") for i, part in enumerate(value)]
        return value if _same(new, value) else type(value)(new)
    if isinstance(value, Mapping):
        named = {key: below(part, f".{key}") for key, part in value.items()}
        if _same(named.values(), value.values()):
            return value
        changed: Any = copy.copy(value)  # keeps the class, such as transformers' ModelOutput
        for key, part in named.items():
            changed[key] = part
        return changed
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: below(getattr(value, f.name), f".{f.name}") for f in fields(value) if f.init}
        changed = {name: part for name, part in named.items() if part is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    return value


def visit_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], is_array: Callable[[Any], bool], visit: Visit
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call `visit` for every array in a call's arguments: ports ``in``, ``in[1]`` ... and ``in.name``.

    An array that is passed more than once, as queries, keys and values are to attention, is visited
    once: the gradient that arrives at it is that of all its uses.
    """
    if len(args) == 1 and not kwargs and is_array(args[0]):
        return (visit("in", args[0]),), {}
    visited: dict[int, Any] = {}

    def once(port: str, array: Any) -> Any:
        if id(array) not in visited:
            visited[id(array)] = visit(port, array)
        return visited[id(array)]

    new = tuple(
        visit_arrays(arg, f"in[{i}]" if i else "in", is_array, once) for i, arg in enumerate(args)
    )
    named = {name: visit_arrays(arg, f"in.{name}", is_array, once) for name, arg in kwargs.items()}
    return new, named


def _same(new: Any, old: Any) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
