"""Rotary position embeddings (arXiv 2104.09864) over a grid of patches: the angles."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vit_config.rope import Rope


def coordinates(rope: Rope, grid: tuple[int, int]) -> np.ndarray:
    """Compute the coordinates of every patch of a grid, the axis that comes first in column 0.

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
