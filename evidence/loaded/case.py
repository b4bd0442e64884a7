"""One case: a model, the file that it was to be loaded from, and whether it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Situation(NamedTuple):
    """What `parity.assert_loaded` is given."""

    model: Any
    file: Any
    apart_from: tuple[str, ...] = ()


class Case(NamedTuple):
    """A situation that is built in a folder."""

    library: str
    name: str
    loaded: bool
    """Whether the model holds the file's numbers."""
    build: Callable[[Path], Situation]
    says: str = ""
    """A part of what the report must say."""


def cases_of(group: str) -> list[Case]:
    """Return the cases of a group; its libraries are imported."""
    from importlib import import_module

    return list(import_module(f"evidence.loaded.{group}").cases())


GROUPS = ("in_torch", "wrapped", "dialects", "in_jax", "in_keras")
