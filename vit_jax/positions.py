"""Fitting a learned position table to the grid of another image."""

import jax
import jax.numpy as jnp

from vit_config import ViTConfig
from vit_config.numerics.resample import grid_matrices


def resample_positions(table: jax.Array, cfg: ViTConfig, grid: tuple[int, int]) -> jax.Array:
    """Resample the table (1, prefix + N, D) from the schema's grid to another, by the schema's rule.

    The rule is a matrix per axis, computed once in float64 (`grid_matrices`); prefix rows stay.
    """
    if grid == cfg.grid:
        return table
    prefix, patches = jnp.split(table, [cfg.num_prefix_rows], axis=1)
    if cfg.pos_embed_resize == "leading_rows":
        return jnp.concatenate([prefix, patches[:, : grid[0] * grid[1]]], axis=1)
    wide = jnp.promote_types(table.dtype, jnp.float32)
    rows, columns = (jnp.asarray(m, wide) for m in grid_matrices(cfg.pos_embed_resize, cfg.grid, grid))
    patches = patches.astype(wide).reshape(*cfg.grid, -1)  # (gh, gw, D)
    patches = jnp.einsum("ai,ijd->ajd", rows, patches)  # (new gh, gw, D)
    patches = jnp.einsum("bj,ajd->abd", columns, patches)  # (new gh, new gw, D)
    patches = patches.reshape(1, grid[0] * grid[1], -1).astype(table.dtype)
    return jnp.concatenate([prefix, patches], axis=1)
