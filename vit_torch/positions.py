"""Learned position tables, fitted to the grids of images."""

from typing import NamedTuple

import numpy as np
import torch

from vit_config import ViTConfig
from vit_config.images.patches import Patches
from vit_config.numerics.resample import table_matrices, tap_weights, taps

Tables = dict[str, torch.Tensor]
"""Learned position tables by name, see `ViTConfig.table_shapes`."""


class Places(NamedTuple):
    """Row and column of every patch in a batch of images with different grids."""

    coordinates: torch.Tensor
    """(B, N, 2): row and column of each patch, 0 for padding."""
    grids: torch.Tensor
    """(B, 2): rows and columns of each image."""


def places_of(patches: Patches) -> Places:
    """Read the places of patches; coordinates of padding count for nothing."""
    coordinates = torch.where(patches.valid[:, :, None], patches.coordinates, 0)
    return Places(coordinates, coordinates.amax(dim=1) + 1)


def fit_positions(tables: Tables, cfg: ViTConfig, grid: tuple[int, int] | Places) -> torch.Tensor:
    """Fit the tables to the grid of all images, (1, prefix + N, D), or to the grid of each, (B, prefix +
    N, D), by the schema's rule; prefix rows stay."""
    if "pos_embed" not in tables:
        down, right = tables["pos_embed_y"], tables["pos_embed_x"]  # (1, rows or columns, D)
        rows, columns = (resample_axis(each[0], cfg, grid, i) for i, each in enumerate((down, right)))
        if isinstance(grid, Places):
            return (rows + columns).to(down.dtype)
        return (rows[:, None] + columns).reshape(1, grid[0] * grid[1], -1).to(down.dtype)
    table = tables["pos_embed"]
    if not isinstance(grid, Places) and grid == cfg.table_grid:
        return table
    prefix, patches = torch.tensor_split(table, [cfg.num_prefix_rows], dim=1)
    fitted = resample_positions(patches, cfg, grid)
    prefix = prefix.expand(len(fitted), *prefix.shape[1:])
    return torch.cat([prefix, fitted.to(table.dtype)], dim=1)


def resample_positions(
    table: torch.Tensor, cfg: ViTConfig, grid: tuple[int, int] | Places
) -> torch.Tensor:
    """Resample the table (1, N, D) of patches to another grid (1, N', D), or to one each (B, N', D)."""
    wide = torch.promote_types(table.dtype, torch.float32)
    square = table.to(wide).reshape(*cfg.table_grid, -1)  # (gh, gw, D)
    if isinstance(grid, Places):
        if cfg.pos_embed_resize == "leading_rows":
            rows, columns = grid.coordinates.unbind(2)  # (B, N)
            return table[0][rows * grid.grids[:, 1:] + columns]
        (rows, down), (columns, right) = (axis_weights(cfg, grid, axis, wide) for axis in (0, 1))
        both = rows[..., :, None] * columns[..., None, :]  # (B, N, taps, taps)
        return torch.einsum("bnij,ijd->bnd", both, square[down][:, right])
    if cfg.pos_embed_resize == "leading_rows":
        return table[:, : grid[0] * grid[1]]
    # a matrix per axis, computed once in float64
    matrices = table_matrices(cfg, grid)
    rows, columns = (torch.tensor(m, dtype=wide, device=table.device) for m in matrices)
    square = torch.einsum("ai,ijd->ajd", rows, square)  # (new gh, gw, D)
    square = torch.einsum("bj,ajd->abd", columns, square)  # (new gh, new gw, D)
    return square.reshape(1, grid[0] * grid[1], -1)


def resample_axis(
    table: torch.Tensor, cfg: ViTConfig, grid: tuple[int, int] | Places, axis: int
) -> torch.Tensor:
    """Resample a table (old, D) of one axis to one side of a grid, (new, D), or to each patch's row or
    column, (B, N, D)."""
    wide = torch.promote_types(table.dtype, torch.float32)
    if not isinstance(grid, Places) and cfg.pos_embed_resize == "leading_rows":
        return table.to(wide)[: grid[axis]]
    if not isinstance(grid, Places):
        matrix = table_matrices(cfg, grid)[axis]
        return torch.tensor(matrix, dtype=wide, device=table.device) @ table.to(wide)
    if cfg.pos_embed_resize == "leading_rows":
        return table.to(wide)[grid.coordinates[:, :, axis]]
    weights, numbers = axis_weights(cfg, grid, axis, wide)
    return weights @ table.to(wide)[numbers]


def axis_weights(
    cfg: ViTConfig, places: Places, axis: int, dtype: torch.dtype
) -> tuple[torch.Tensor, np.ndarray]:
    """Return the weights (B, N, taps) of a table's values along one axis, and their numbers (taps,)."""
    old, rule = cfg.table_grid[axis], cfg.pos_embed_resize
    sides = places.grids
    new = sides.amax(dim=1) if cfg.pos_embed_aspect == "keep" else sides[:, axis]  # (B,)
    at = places.coordinates[:, :, axis, None].to(dtype)  # (B, N, 1)
    numbers = torch.tensor(taps(rule, old), dtype=dtype, device=sides.device)
    fitted = tap_weights(rule, old, new[:, None, None].to(dtype), at, numbers)
    if cfg.pos_embed == "learned":  # a table of the image's own grid stays as it is
        own = torch.tensor(cfg.table_grid, device=sides.device)
        same = (sides == own).all(dim=1)[:, None, None]  # (B, 1, 1)
        fitted = torch.where(same, (at == numbers).to(dtype), fitted)
    return fitted, np.clip(taps(rule, old), 0, old - 1)
