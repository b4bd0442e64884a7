"""Definition of a text dialect: its table of names, and what its files and its code state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.dialect import Fixed
from parity.porting.dialects.table import Table


@dataclass(frozen=True)
class TextDialect:
    """One library's names and layouts for a text tower beside an image tower."""

    name: str
    title: str
    """Name of the library, in words."""
    beside: tuple[str, ...]
    """Dialects of image towers in whose files this one is."""
    tables: tuple[Table, ...]
    """Alternative tables; the one that leaves the fewest tensors over is used, the first of several."""
    mark: str
    """A tensor that every such tower has, and no other file."""
    tower: tuple[str, ...]
    """Shell patterns of every tensor that is of the tower, also of those that no table has."""
    stated: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda sidecars: {}
    """Returns the fields that config files state; none if they are of another model.

    Raises ConfigError: they state a model that no schema can express."""
    follows: Callable[[Mapping[str, Any]], Mapping[str, Fixed]] = lambda fields: {}
    """Returns fields that the library's code decides, given those known so far."""
    buffers: tuple[str, ...] = field(default=())
    """Shell patterns of tensors of the tower that are no parameters."""
