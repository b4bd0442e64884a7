"""The interface through which a watched model, of either framework, reports its tensors."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
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
