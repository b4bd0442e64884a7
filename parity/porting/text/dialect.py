"""Definition of a text dialect: its table of names, and what its files and its code state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from parity.porting.dialects.dialect import Fixed
from parity.porting.dialects.table import Table
from vit_config import TextConfig, ViTConfig

T = TypeVar("T")
Contents = Mapping[str, Mapping[str, Any]]
"""Contents of JSON files by name."""


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
    modules: Callable[[Any], Mapping[str, Any]] = lambda model: {}
    """Returns the fields that the modules of a model in memory state."""
    follows: Callable[[Mapping[str, Any]], Mapping[str, Fixed]] = lambda fields: {}
    """Returns fields that the library's code decides, given those known so far."""
    buffers: tuple[str, ...] = ()
    """Shell patterns of tensors of the tower that are no parameters."""
    cleans: Callable[[Mapping[str, Any]], str] = lambda sidecars: ""
    """Returns, given the config files, what the library's code does to texts before its tokenizer: a
    name of `parity.porting.text.cleaning.CLEANINGS`, or words for what is not done here."""
    limits: Callable[[TextConfig], Iterator[str]] = lambda cfg: iter(())
    """Yields why the library cannot have such a tower, a sentence each."""
    files: Callable[[Contents, TextConfig, ViTConfig], Contents] = lambda files, cfg, image: files
    """Returns the config files of both towers, given those of the image tower by itself."""
    extra: Callable[[TextConfig], Mapping[str, np.ndarray]] = lambda cfg: {}
    """Returns arrays that the library's files have beside the parameters."""
    image_prefix: str = ""
    """Prefix of the image tower's tensors in a file of both, where they have none by themselves."""
    text_prefix: str = ""
    """Prefix of the text tower's tensors in such a file, before the names of the tables."""
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
