"""Refuses an input that a model was not built for, by its shape alone."""

from __future__ import annotations

from typing import Any

from vit_config.errors import InputError
from vit_config.grids import first_rows_suffice, nearest_sizes
from vit_config.schema import ViTConfig


def check_batch(images: Any, axes: str) -> None:
    """Refuse what is no batch of images.

    Args:
        axes: the axes of one, for the message.

    Raises:
        InputError: it is no array of four axes, or has no image in it.
    """
    if not hasattr(images, "shape"):
        raise InputError(f"images are a {type(images).__name__}, expected an array ({axes}) or Patches")
    shape = tuple(images.shape)
    if len(shape) != 4:
        raise InputError(f"images have shape {shape}, expected ({axes})")
    if isinstance(shape[0], int) and not shape[0]:  # a size that is not known yet is of another type
        raise InputError(f"images have shape {shape}, which is no image; give at least one")


def check_image(cfg: ViTConfig, height: int, width: int, channels: int) -> None:
    """Refuse an input the model was not built for.

    Raises:
        InputError: wrong channels, or a size this schema cannot take.
    """
    if channels != cfg.in_channels:
        order = "; in JAX channels come last, in PyTorch first"
        raise InputError(
            f"the image has {channels} channels, the model takes in_channels = {cfg.in_channels}"
            + order * (cfg.in_channels in (height, width))
        )
    if (height, width) == cfg.image_size and not cfg.dynamic_image_size:
        return
    given, built = f"{height}x{width}", "{}x{}".format(*cfg.image_size)
    if not cfg.dynamic_image_size:
        raise InputError(
            f"the image is {given}, the model takes image_size = {built}; resize the image, or"
            " build the model with dynamic_image_size = true"
        )
    rows, columns = cfg.grid_of(height, width)
    covered = rows * cfg.patch_size[0], columns * cfg.patch_size[1]
    if not rows * columns or (covered != (height, width) and cfg.patch_remainder == "refuse"):
        raise InputError(
            f"the image is {given}, not divisible by patch_size = {cfg.patch_size}; "
            + nearest_sizes((height, width), cfg.patch_size)
        )
    check_grid(cfg, rows, columns, f"the image is {given} and")


def check_grid(cfg: ViTConfig, rows: int, columns: int, what: str) -> None:
    """Refuse a grid for which positions run out.

    Args:
        what: the beginning of the message: what has the grid.

    Raises:
        InputError: positions are the first of a table, and it has too few; or squares to be pooled do
            not divide it.
    """
    if cfg.pool_window and (rows % cfg.pool_window or columns % cfg.pool_window):
        raise InputError(
            f"{what} has {rows}x{columns} patches, which pool_window = {cfg.pool_window} does not"
            " divide; resize it"
        )
    if cfg.pos_embed_resize == "leading_rows" and not first_rows_suffice(cfg, rows, columns):
        (height, width), is_one = cfg.table_grid, cfg.pos_embed == "learned"
        has, held = (
            (rows * columns, f"table of a grid {height}x{width} has {height * width}")
            if is_one
            else (f"{rows}x{columns}", f"tables have {height}x{width}")
        )
        raise InputError(
            f"{what} has {has} patches, the position {held}; use a smaller image, or another"
            " pos_embed_resize"
        )


def check_patches(
    cfg: ViTConfig,
    pixels: tuple[int, ...],
    coordinates: tuple[int, ...],
    valid: tuple[int, ...],
) -> None:
    """Refuse a batch of patches that the model was not built for, by the shapes of its parts.

    Raises:
        InputError: the model takes no patches, or the parts do not fit together.
    """
    if not cfg.dynamic_image_size or cfg.pos_embed.startswith("sincos"):
        raise InputError(
            "the model takes images, not patches: they need dynamic_image_size = true and positions"
            f" that are learned, rotary or none, but dynamic_image_size = {cfg.dynamic_image_size}"
            f' and pos_embed = "{cfg.pos_embed}"'
        )
    if len(pixels) != 3 or coordinates != (*pixels[:2], 2) or valid != pixels[:2]:
        raise InputError(
            f"patches have shapes {pixels}, {coordinates} and {valid}, expected pixels"
            " (B, N, ph * pw * C), coordinates (B, N, 2) and valid (B, N)"
        )
    if cfg.pool_window and pixels[1] % cfg.pool_window**2:
        raise InputError(
            f"the batch has {pixels[1]} patches of each image, which squares of pool_window ="
            f" {cfg.pool_window} do not divide; pad to a multiple of {cfg.pool_window**2} (`lengths`)"
        )
    if pixels[2] != cfg.patch_dim:
        (height, width), C = cfg.patch_size, cfg.in_channels
        raise InputError(
            f"patches have {pixels[2]} values each, the model's have {height} * {width} * {C} ="
            f" {cfg.patch_dim}"
        )
