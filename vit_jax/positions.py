"""Learned position tables, fitted to the grids of images."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_config import ViTConfig
from vit_config.images.patches import Patches
from vit_config.numerics.resample import table_matrices, tap_weights, taps

Tables = dict[str, jax.Array]
"""Learned position tables by name, see `ViTConfig.table_shapes`."""


class Places(NamedTuple):
    """Row and column of every patch in a batch of images with different grids."""

    coordinates: jax.Array
    """(B, N, 2): row and column of each patch, 0 for padding."""
    grids: jax.Array
    """(B, 2): rows and columns of each image."""


def places_of(patches: Patches) -> Places:
    """Read the places of patches; coordinates of padding count for nothing."""
    coordinates = jnp.where(patches.valid[:, :, None], patches.coordinates, 0)
    return Places(coordinates, coordinates.max(axis=1) + 1)


def fit_positions(tables: Tables, cfg: ViTConfig, grid: tuple[int, int] | Places) -> jax.Array:
    """Fit the tables to the grid of all images, (1, prefix + N, D), or to the grid of each, (B, prefix +
    N, D), by the schema's rule; prefix rows stay."""
    if "pos_embed" not in tables:
        down, right = tables["pos_embed_y"], tables["pos_embed_x"]  # (1, rows or columns, D)
        rows, columns = (resample_axis(each[0], cfg, grid, i) for i, each in enumerate((down, right)))
        if isinstance(grid, Places):
            return (rows + columns).astype(down.dtype)
        return (rows[:, None] + columns).reshape(1, grid[0] * grid[1], -1).astype(down.dtype)
    table = tables["pos_embed"]
    if not isinstance(grid, Places) and grid == cfg.table_grid:
        return table
    prefix, patches = jnp.split(table, [cfg.num_prefix_rows], axis=1)
    fitted = resample_positions(patches, cfg, grid)
    prefix = jnp.broadcast_to(prefix, (len(fitted), *prefix.shape[1:]))
    return jnp.concatenate([prefix, fitted.astype(table.dtype)], axis=1)


def resample_positions(table: jax.Array, cfg: ViTConfig, grid: tuple[int, int] | Places) -> jax.Array:
    """Resample the table (1, N, D) of patches to another grid (1, N', D), or to one each (B, N', D)."""
    wide = jnp.promote_types(table.dtype, jnp.float32)
    square = table.astype(wide).reshape(*cfg.table_grid, -1)  # (gh, gw, D)
    if isinstance(grid, Places):
        if cfg.pos_embed_resize == "leading_rows":
            rows, columns = jnp.moveaxis(grid.coordinates, 2, 0)  # (B, N)
            return table[0][rows * grid.grids[:, 1:] + columns]
        (rows, down), (columns, right) = (axis_weights(cfg, grid, axis, wide) for axis in (0, 1))
        both = rows[..., :, None] * columns[..., None, :]  # (B, N, taps, taps)
        return jnp.einsum("bnij,ijd->bnd", both, square[down][:, right])
    if cfg.pos_embed_resize == "leading_rows":
        return table[:, : grid[0] * grid[1]]
    # a matrix per axis, computed once in float64
    rows, columns = (jnp.asarray(m, wide) for m in table_matrices(cfg, grid))
    square = jnp.einsum("ai,ijd->ajd", rows, square)  # (new gh, gw, D)
    square = jnp.einsum("bj,ajd->abd", columns, square)  # (new gh, new gw, D)
    return square.reshape(1, grid[0] * grid[1], -1)


def resample_axis(
    table: jax.Array, cfg: ViTConfig, grid: tuple[int, int] | Places, axis: int
) -> jax.Array:
    """Resample a table (old, D) of one axis to one side of a grid, (new, D), or to each patch's row or
    column, (B, N, D)."""
    wide = jnp.promote_types(table.dtype, jnp.float32)
    if not isinstance(grid, Places) and cfg.pos_embed_resize == "leading_rows":
        return table.astype(wide)[: grid[axis]]
    if not isinstance(grid, Places):
        return jnp.asarray(table_matrices(cfg, grid)[axis], wide) @ table.astype(wide)
    if cfg.pos_embed_resize == "leading_rows":
        return table.astype(wide)[grid.coordinates[:, :, axis]]
    weights, numbers = axis_weights(cfg, grid, axis, wide)
    return weights @ table.astype(wide)[numbers]


def axis_weights(
    cfg: ViTConfig, places: Places, axis: int, dtype: jnp.dtype
) -> tuple[jax.Array, np.ndarray]:
    """Return the weights (B, N, taps) of a table's values along one axis, and their numbers (taps,)."""
    old, rule = cfg.table_grid[axis], cfg.pos_embed_resize
    sides = places.grids
    new = sides.max(axis=1) if cfg.pos_embed_aspect == "keep" else sides[:, axis]  # (B,)
    at = places.coordinates[:, :, axis, None].astype(dtype)  # (B, N, 1)
    numbers = jnp.asarray(taps(rule, old), dtype)
    fitted = tap_weights(rule, old, new[:, None, None].astype(dtype), at, numbers)
    if cfg.pos_embed == "learned":  # a table of the image's own grid stays as it is
        own = jnp.asarray(cfg.table_grid)
        same = (sides == own).all(axis=1)[:, None, None]  # (B, 1, 1)
        fitted = jnp.where(same, (at == numbers).astype(dtype), fitted)
    return fitted, np.clip(taps(rule, old), 0, old - 1)
