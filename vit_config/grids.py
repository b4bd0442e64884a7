"""Grids of patches that images are cut into, and that position tables are made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_config.schema import ViTConfig


def first_rows_suffice(cfg: ViTConfig, rows: int, columns: int) -> bool:
    """Return whether the learned positions, not resampled, are enough for a grid."""
    height, width = cfg.table_grid
    if cfg.pos_embed == "factorized":
        return rows <= height and columns <= width
    return cfg.pos_embed != "learned" or rows * columns <= height * width


def nearest_sizes(size: tuple[int, int], patch: tuple[int, int]) -> str:
    """Name the valid image sizes next to an invalid one, in words."""
    below = [max(side // p, 1) * p for side, p in zip(size, patch, strict=True)]
    above = [-(-side // p) * p for side, p in zip(size, patch, strict=True)]
    sizes = dict.fromkeys(["{}x{}".format(*below), "{}x{}".format(*above)])
    return "the nearest valid sizes are " + " and ".join(sizes)
