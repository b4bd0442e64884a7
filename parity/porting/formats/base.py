"""`Container`: the common form into which every kind of checkpoint file is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vit_config.files.stored import Stored, guarded

__all__ = ["Container", "Progress", "Stored", "guarded", "lying_at"]

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


def lying_at(
    opened: Callable[[], BinaryIO], begin: int, shape: tuple[int, ...], dtype: np.dtype, where: object
) -> Stored:
    """Return a tensor whose values lie in a file one behind the other.

    Args:
        opened: opens the file.
        begin: the place of its first byte.
        where: the file, for messages.
    """

    def load() -> np.ndarray:
        with guarded(where, "file"), opened() as file:
            file.seek(begin)
            values = np.frombuffer(file.read(math.prod(shape) * dtype.itemsize), dtype)
            return np.asarray(values.reshape(shape), dtype.newbyteorder("="))

    return Stored(shape, dtype.newbyteorder("="), load)
