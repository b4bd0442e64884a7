"""What a deliberate fault is, and how it gets into the live model code of one twin."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from vit_config import ConfigError, ViTConfig


@dataclass(frozen=True)
class Fault:
    """One deliberate mistake."""

    summary: str
    module: str
    """Where the check must find it: a module, empty for the model itself, or the first other output."""
    patch: Callable[[], Any]
    """Makes the context manager that puts it in."""
    needs: Mapping[str, Any]
    """Schema fields with the values, or the function of a value, that a model must have to suffer it."""


FAULTS: dict[str, Fault] = {}


def inject(name: str | None, cfg: ViTConfig) -> Any:
    """A context in which the fault called `name` is in the model code; None injects nothing.

    Raises:
        ConfigError: there is no such fault, or a model of this schema cannot have it.
    """
    if name is None:
        return nullcontext()
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "the faults are " + ", ".join(FAULTS)
        raise ConfigError(f"no fault is called {name!r}; {hint}")
    for field, accepted in FAULTS[name].needs.items():
        value = getattr(cfg, field)
        if not (accepted(value) if callable(accepted) else value == accepted):
            raise ConfigError(f"the fault {name!r} has nothing to break where {field} = {value!r}")
    return FAULTS[name].patch()


def fault(summary: str, module: str, **needs: Any) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Register a generator function as the fault of its name."""

    def register(function: Callable[[], Iterator[None]]) -> None:
        name = function.__name__.removeprefix("_")
        FAULTS[name] = Fault(summary, module, contextmanager(function), needs)

    return register
