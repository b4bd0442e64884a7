"""Fitting a learned position table to the grid of another image."""

import torch

from vit_config import ViTConfig
from vit_config.numerics.resample import grid_matrices


def resample_positions(table: torch.Tensor, cfg: ViTConfig, grid: tuple[int, int]) -> torch.Tensor:
    """Resample the table (1, prefix + N, D) from the schema's grid to another, by the schema's rule.

    The rule is a matrix per axis, computed once in float64 (`grid_matrices`); prefix rows stay.
    """
    if grid == cfg.grid:
        return table
    prefix, patches = torch.tensor_split(table, [cfg.num_prefix_rows], dim=1)
    if cfg.pos_embed_resize == "leading_rows":
        return torch.cat([prefix, patches[:, : grid[0] * grid[1]]], dim=1)
    wide = torch.promote_types(table.dtype, torch.float32)
    matrices = grid_matrices(cfg.pos_embed_resize, cfg.grid, grid)
    rows, columns = (torch.tensor(m, dtype=wide, device=table.device) for m in matrices)
    patches = patches.to(wide).reshape(*cfg.grid, -1)  # (gh, gw, D)
    patches = torch.einsum("ai,ijd->ajd", rows, patches)  # (new gh, gw, D)
    patches = torch.einsum("bj,ajd->abd", columns, patches)  # (new gh, new gw, D)
    patches = patches.reshape(1, grid[0] * grid[1], -1).to(table.dtype)
    return torch.cat([prefix, patches], dim=1)
