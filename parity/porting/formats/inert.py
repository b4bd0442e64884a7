"""What a pickle's contents become here: plain data that cannot act.

Nothing in this file calls, imports or looks up anything that a file names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_LONGEST_TEXT = 80


def shown(value: Any) -> str:
    """A value from a file as text for people; of containers the type alone.

    The text of a container can be exponentially longer than the pickle that made it.
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
    """The name of a class or function; never the thing itself."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Inert:
    """An object of a class that is only named: what it was made with, and its state."""

    made_by: Global
    args: tuple = ()
    state: Any = None
    items: dict = field(default_factory=dict)
    """Entries, if the class is a kind of dict."""
    elements: list = field(default_factory=list)
    """Entries, if the class is a kind of list."""

    def __str__(self) -> str:
        return f"{self.made_by}({', '.join(map(shown, self.args[:9]))})"

    def attributes(self) -> dict | None:
        """The entries that tell something, or None if there are none; under "" what stands for it.

        A module's parameters, buffers and parts stand for the module; an OmegaConf node's content for
        the node.
        """
        state = self.state
        if isinstance(state, tuple) and len(state) == 2:  # the state proper, and the values of __slots__
            state = _merged(state)
        if not isinstance(state, dict):
            state = {}
        if "_parameters" in state and "_modules" in state:
            state = _merged(state.get(key) for key in ("_parameters", "_buffers", "_modules"))
        if "_content" in state:
            state = {"": state["_content"]}
        if "_val" in state:
            state = {"": state["_val"]}
        found = {**state, **self.items, **dict(enumerate(self.elements))}
        return found or None


def _merged(parts: Iterable[Any]) -> dict:
    return {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}


@dataclass(eq=False)
class Refused:
    """A tensor of a kind that has no plain array; its name is known only when the whole is flattened."""

    reason: str


@dataclass(eq=False)
class NumpyType:
    """A numpy type under construction: its byte order comes after it is made."""

    dtype: np.dtype


@dataclass(eq=False)
class NumpyArray:
    """A numpy array under construction: its contents come after it is made."""

    array: np.ndarray | None = None
