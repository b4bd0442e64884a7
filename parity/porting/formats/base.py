"""`Container`: the common form into which every kind of checkpoint file is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vit_config.files.stored import Stored, guarded

__all__ = ["Container", "Progress", "Stored", "guarded"]

Progress = Callable[[int], None]
"""Called with the number of bytes just written."""


@dataclass(frozen=True)
class Container:
    """A checkpoint whose tensors are described but not read."""

    path: Path
    """The path that was opened: a file or a folder."""
    files: tuple[Path, ...]
    """The files (for Orbax the folder) that hold the tensors."""
    kind: str
    """For example "safetensors", "safetensors (3 shards)", "torch (legacy)", "npz", "orbax"."""
    tensors: dict[str, Stored]
    """Tensors by flat name: keys and attributes joined with "." (npz, msgpack and orbax: "/")."""
    objects: dict[str, Any] = field(default_factory=dict)
    """Values other than tensors, by flat name: numbers, strings, booleans, None, bytes; an empty list
    or dict; the text of anything else."""
    metadata: dict[str, str] = field(default_factory=dict)
    """``__metadata__`` of a safetensors header, or the entries in the comment of a zip archive."""
    sidecars: dict[str, Any] = field(default_factory=dict)
    """Parsed JSON files beside the weights, by file name."""
