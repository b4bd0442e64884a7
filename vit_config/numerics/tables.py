"""Fixed position tables, computed once in float64 numpy and added by both twins."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vit_config.schema import ViTConfig


def sincos1d(rows: int, dim: int) -> np.ndarray:
    """Compute PE[i, 2j] = sin(i / 10000^(2j/d)), PE[i, 2j+1] = cos(same) (arXiv 1706.03762, 3.5).

    Returns:
        (rows, dim) float64.
    """
    angle = np.arange(rows)[:, None] / 10000 ** (np.arange(0, dim, 2) / dim)  # (rows, dim/2)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(rows, dim)


def sincos2d(grid: tuple[int, int], dim: int) -> np.ndarray:
    """Compute [sin x, cos x, sin y, cos y], column x, row y, w_k = 10000^(-k/(d/4)) (MAE, arXiv
    2111.06377).

    Returns:
        (grid rows * grid columns, dim) float64, row-major.
    """
    return _grid_sincos(grid, 10000 ** -(np.arange(dim // 4) / (dim // 4)))


def sincos2d_simple(grid: tuple[int, int], dim: int) -> np.ndarray:
    """Compute `sincos2d` with w_k = 10000^(-k/(d/4 - 1)) (SimpleViT, arXiv 2205.01580; Big Vision).

    Returns:
        (grid rows * grid columns, dim) float64, row-major.
    """
    return _grid_sincos(grid, 10000 ** -(np.arange(dim // 4) / max(dim // 4 - 1, 1)))


def _grid_sincos(grid: tuple[int, int], omega: np.ndarray) -> np.ndarray:
    y, x = np.meshgrid(np.arange(grid[0]), np.arange(grid[1]), indexing="ij")
    x = x.reshape(-1, 1) * omega  # (N, D/4)
    y = y.reshape(-1, 1) * omega
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


def fixed_position_table(cfg: ViTConfig, grid: tuple[int, int]) -> np.ndarray | None:
    """Compute the fixed position table of a schema, for an image of that grid.

    Returns:
        (prefix rows + N, D) float64, read-only; None for learned positions or none at all.
    """
    if not cfg.pos_embed.startswith("sincos"):
        return None
    return _table(cfg.pos_embed, cfg.num_prefix_rows, grid, cfg.hidden_size)


@lru_cache(maxsize=32)
def _table(kind: str, prefix_rows: int, grid: tuple[int, int], dim: int) -> np.ndarray:
    if kind == "sincos1d":
        table = sincos1d(prefix_rows + grid[0] * grid[1], dim)
    else:
        table = {"sincos2d": sincos2d, "sincos2d_simple": sincos2d_simple}[kind](grid, dim)
    table.setflags(write=False)
    return table


def count_relative_positions(grid: tuple[int, int]) -> int:
    """Count a relative position table's rows: one per offset between patches, three for a
    class token."""
    return (2 * grid[0] - 1) * (2 * grid[1] - 1) + 3


@lru_cache(maxsize=32)
def relative_position_index(grid: tuple[int, int]) -> np.ndarray:
    """Return the row of a table of relative positions for each pair of tokens (BEiT, arXiv 2106.08254).

    Offsets between patches come first, row-major from the most negative; then class token to patch,
    patch to class token, class token to itself.

    Returns:
        (1 + N, 1 + N) int64, read-only; row: the query.
    """
    rows, columns = (axis.reshape(-1) for axis in np.indices(grid))
    down = rows[:, None] - rows[None, :] + grid[0] - 1  # (N, N)
    right = columns[:, None] - columns[None, :] + grid[1] - 1
    last = count_relative_positions(grid) - 1
    index = np.empty((1 + len(rows),) * 2, np.int64)
    index[1:, 1:] = down * (2 * grid[1] - 1) + right
    index[0, :], index[:, 0], index[0, 0] = last - 2, last - 1, last
    index.setflags(write=False)
    return index
