"""Memory that a program writes into, and the operation that holds all of it now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from parity.verifier.programs.aten.calls import tensor_of

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides and offset."""


@dataclass
class WrittenStorage:
    """Memory that was written to, and the operation that holds all of it now."""

    length: int
    index: int
    geometry: Geometry
    keeper: torch.Tensor
    """A tensor that keeps the memory in use, so that its address is no other's."""
    writes: int = 0


def flat_of(tensor: torch.Tensor, geometry: Any, length: int) -> torch.Tensor:
    """Return all of a storage, with the elements of a tensor in their places and zeros elsewhere."""
    flat = torch.zeros(length, dtype=tensor.dtype)
    torch.as_strided(flat, *geometry).copy_(tensor)
    return flat


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Return sizes, strides and offset of a tensor in its storage."""
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())


@dataclass(frozen=True)
class WrittenView:
    """A view of a storage, such as one that was written to."""

    whole: Geometry
    part: Geometry
    length: int

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the view, given the storage."""
        flat = flat_of(tensor_of(operands[0]), self.whole, self.length)
        return torch.as_strided(flat, *self.part).numpy()


def strided(tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None) -> WrittenView:
    """Return `as_strided` as a view of its tensor's storage; what is given again may lie otherwise."""
    offset = int(tensor.storage_offset()) if offset is None else offset
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    return WrittenView(geometry_of(tensor), (tuple(size), tuple(stride), offset), length)


@dataclass(frozen=True)
class Write:
    """A storage after a part of it was written to."""

    whole: Geometry
    part: Geometry
    length: int

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the storage, given what it held and the part."""
        flat = flat_of(tensor_of(operands[0]), self.whole, self.length)
        torch.as_strided(flat, *self.part).copy_(tensor_of(operands[1]))
        return torch.as_strided(flat, *self.whole).numpy()
