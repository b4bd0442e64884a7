"""Rotary position embeddings (arXiv 2104.09864) over a grid of patches: the angles."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from vit_config.rope import Rope


def coordinates(rope: Rope, grid: tuple[int, int]) -> np.ndarray:
    """Compute the coordinates of every patch of a grid, the axis that comes first in column 0.

    Returns:
        (N, 2) float64, patches row by row.
    """
    sides = [np.arange(side, dtype=np.float64) for side in grid]
    sides = [coordinates_of(rope, axis, x, len(x)) for axis, x in enumerate(sides)]
    rows, columns = np.meshgrid(*sides, indexing="ij")
    return np.stack([axis.reshape(-1) for axis in in_order(rope, rows, columns)], axis=-1)


def coordinates_of(rope: Rope, axis: int, places: Any, length: Any) -> Any:
    """Compute the coordinate of each place along an axis of `length` patches, 0 for rows, 1 for columns.

    Both are arrays of numpy, JAX or PyTorch that broadcast together; nothing but operators is used.
    """
    if rope.kind == "centered":
        places = 2 * (places + 0.5 + rope.offset) / length - 1
    else:
        places = places + rope.offset
    return places if rope.reference_grid is None else places / length * rope.reference_grid[axis]


def in_order(rope: Rope, rows: Any, columns: Any) -> tuple[Any, Any]:
    """Return rows and columns, the axis that comes first first."""
    return (rows, columns) if rope.axes == "hw" else (columns, rows)


def frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """Return one axis's d / 4 angular frequencies: theta^(-4i/d), times 2 pi for centred coordinates."""
    bands = rope.theta ** -(np.arange(head_dim // 4) / (head_dim // 4))
    return 2 * np.pi * bands if rope.kind == "centered" else bands


@lru_cache(maxsize=32)
def rotation_table(rope: Rope, grid: tuple[int, int], head_dim: int) -> np.ndarray:
    """Compute the angle of every pair of every patch, for axial or centered positions.

    Returns:
        (N, d / 2) float64, read-only: the pairs of the first axis, then those of the second.
    """
    angles = coordinates(rope, grid)[:, :, None] * frequencies(rope, head_dim)  # (N, 2, d/4)
    table = angles.reshape(len(angles), head_dim // 2)
    table.setflags(write=False)
    return table
