"""Memory that a program writes into: which operation holds all of it now."""

from __future__ import annotations

from typing import Any

import torch


class Storage:
    """Memory that was written to: the operation that holds all of it now."""

    def __init__(self, witness: Any, length: int) -> None:
        self.length, self.writes, self.index = length, 0, -1
        self.geometry: Any = None
        self.keeper: Any = None

    def alive(self) -> bool:
        """Whether the memory is still in use."""
        return self.keeper is not None


def flat_of(tensor: torch.Tensor, geometry: Any, length: int) -> torch.Tensor:
    """All of a storage, with the elements of a tensor in their places."""
    flat = torch.zeros(length, dtype=tensor.dtype)
    torch.as_strided(flat, *geometry).copy_(tensor)
    return flat


def geometry_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and offset of a tensor in its storage."""
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())
