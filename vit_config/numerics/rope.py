"""Rotary position embeddings (arXiv 2104.09864) over a grid of patches: the options and the angles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from pydantic import PositiveFloat, model_validator

from vit_config.base import Schema, Size


class Rope(Schema, frozen=True):
    """Which angles queries and keys of the patch tokens are turned by; prefix tokens never are."""

    kind: Literal["axial", "centered", "mixed"] = "axial"
    """Integer coordinates with the frequencies of language models (EVA-02, arXiv 2303.11331); patch
    centres in [-1, 1] (DINOv3, arXiv 2508.10104); or integer coordinates with frequencies learned per
    block and head (arXiv 2403.13298)."""
    theta: PositiveFloat = 10000.0
    """Base of the frequencies; of learned ones, of their initial values."""
    reference_grid: Size | None = None
    """Axial: the grid of pretraining, onto which the coordinates of another grid are rescaled."""
    offset: float = 0.0
    """Axial and centered: added to every coordinate, in patches."""
    axes: Literal["hw", "wh"] = "hw"
    """Which axis turns the first half of the pairs: rows first, or columns first."""
    pairs: Literal["interleaved", "half"] = "interleaved"
    """Which values of a head are turned together: (0, 1), (2, 3) ..., or i and i + d / 2."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(self._contradictions()):
            raise ValueError("; ".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        if self.kind != "axial" and self.reference_grid is not None:
            grid = self.reference_grid
            yield f'reference_grid = {grid} needs kind = "axial", but kind = "{self.kind}"'
        if self.kind == "mixed" and self.offset:
            yield f'offset = {self.offset} is never added with kind = "mixed"; leave it out'
        if self.kind == "mixed" and self.pairs == "half":
            yield 'pairs = "half" does not go with kind = "mixed", whose pairs are interleaved'


def coordinates(rope: Rope, grid: tuple[int, int]) -> np.ndarray:
    """The coordinates of every patch of a grid, the axis that comes first in column 0.

    Returns:
        (N, 2) float64, patches row by row.
    """
    sides = [np.arange(side, dtype=np.float64) for side in grid]
    if rope.kind == "centered":
        sides = [2 * (x + 0.5 + rope.offset) / len(x) - 1 for x in sides]
    else:
        sides = [x + rope.offset for x in sides]
    if rope.reference_grid is not None:
        sides = [x / len(x) * r for x, r in zip(sides, rope.reference_grid, strict=True)]
    rows, columns = np.meshgrid(*sides, indexing="ij")
    order = (rows, columns) if rope.axes == "hw" else (columns, rows)
    return np.stack([axis.reshape(-1) for axis in order], axis=-1)


def frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """The d / 4 angular frequencies of one axis: theta^(-4i/d), times 2 pi of centred coordinates."""
    bands = rope.theta ** -(np.arange(head_dim // 4) / (head_dim // 4))
    return 2 * np.pi * bands if rope.kind == "centered" else bands


@lru_cache(maxsize=32)
def rotation_table(rope: Rope, grid: tuple[int, int], head_dim: int) -> np.ndarray:
    """The angle of every pair of every patch, of axial or centered positions.

    Returns:
        (N, d / 2) float64, read-only: the pairs of the first axis, then those of the second.
    """
    angles = coordinates(rope, grid)[:, :, None] * frequencies(rope, head_dim)  # (N, 2, d/4)
    table = angles.reshape(len(angles), head_dim // 2)
    table.setflags(write=False)
    return table
