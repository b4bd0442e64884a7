"""Definition of a text dialect: its table of names, and what its files and its code state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from parity.porting.dialects.dialect import Fixed
from parity.porting.dialects.table import Table

T = TypeVar("T")


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
    buffers: tuple[str, ...] = ()
    """Shell patterns of tensors of the tower that are no parameters."""
    cleans: Callable[[Mapping[str, Any]], str] = lambda sidecars: ""
    """Returns, given the config files, what the library's code does to texts before its tokenizer."""
    sibling: str = ""
    """Last level of the image tower's prefix, where the text tower is beside it and not under it."""

    def place(self, branch: str, inside: Mapping[str, T], every: Mapping[str, T]) -> Mapping[str, T]:
        """Return the tensors among which the tower is, by the names of the tables.

        Args:
            branch: prefix of the image tower.
            inside: tensors under that prefix, by the rest of their names.
            every: all tensors of the file.
        """
        if not self.sibling:
            return inside
        if not f"/{branch}".endswith(f"/{self.sibling}"):
            return {}
        prefix = branch.removesuffix(self.sibling)
        return {n.removeprefix(prefix): each for n, each in every.items() if n.startswith(prefix)}
