"""Types for the contents of a pickle: plain data that cannot run code.

Nothing in this file calls, imports or looks up anything that a file names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_LONGEST_TEXT = 80


def describe_value(value: Any) -> str:
    """Return a value from a file as text for messages; of a container only the type.

    The text of a container can be exponentially longer than its pickle.
    """
    if isinstance(value, Global):
        return str(value)[:_LONGEST_TEXT]
    if isinstance(value, str | bytes):
        return repr(value[:_LONGEST_TEXT])
    if isinstance(value, int) and value.bit_length() > 64:
        return "a giant number"
    return repr(value) if isinstance(value, int | float | complex | None) else type(value).__name__


@dataclass(frozen=True, eq=False)
class Global:
    """The name of a class or function, never the object itself."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Inert:
    """A record of an object whose class is only named: its arguments and its state."""

    made_by: Global
    args: tuple = ()
    state: Any = None
    items: dict = field(default_factory=dict)
    """Entries, if the class is a kind of dict."""
    elements: list = field(default_factory=list)
    """Entries, if the class is a kind of list."""

    def __str__(self) -> str:
        return f"{self.made_by}({', '.join(map(describe_value, self.args[:9]))})"

    def attributes(self) -> dict | None:
        """Return the entries to flatten, or None; an entry under "" stands for the object itself.

        A module's parameters, buffers and submodules stand for the module; an OmegaConf node's content
        for the node.
        """
        state = self.state
        if isinstance(state, tuple) and len(state) == 2:  # __dict__, and the values of __slots__
            state = _merged(state)
        if not isinstance(state, dict):
            state = {}
        if "_parameters" in state and "_modules" in state:
            state = _merged(state.get(key) for key in ("_parameters", "_buffers", "_modules"))
        if "_content" in state:
            state = {"": state["_content"]}
        if "_val" in state:
            state = {"": state["_val"]}
        entries = {**state, **self.items, **dict(enumerate(self.elements))}
        return entries or None


def _merged(parts: Iterable[Any]) -> dict:
    return {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}


@dataclass(eq=False)
class Refused:
    """A tensor that no plain array can hold; an error names it when the tree is flattened."""

    reason: str


@dataclass(eq=False)
class NumpyType:
    """A numpy type under construction: a later opcode sets its byte order."""

    dtype: np.dtype


@dataclass(eq=False)
class NumpyArray:
    """A numpy array under construction: a later opcode sets its contents."""

    array: np.ndarray | None = None
