"""Fitting a model's weights to another image size or patch size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vit_config.choices import Resampling
from vit_config.errors import ConfigError, WeightsError
from vit_config.numerics.resample import (
    PATCH_RULES,
    apply_matrices,
    check_rule,
    patch_matrices,
    relative_matrices,
    resample_rows,
)
from vit_config.schema import ViTConfig

_CLASS_ROWS = 3  # of a relative table: class token to patches, patches to it, it to itself


def resize_weights(
    config: ViTConfig,
    arrays: Mapping[str, np.ndarray],
    *,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | tuple[int, int] | None = None,
    rule: Resampling | None = None,
    patch_rule: Resampling = "bilinear",
) -> tuple[ViTConfig, dict[str, np.ndarray]]:
    """Fit a model's weights to another image size, patch size, or both.

    Learned position tables, tables of relative positions (by BEiT's rule) and the patch projection
    change; fixed position tables and rotary angles are computed from the schema.

    Args:
        config: the schema of the weights.
        arrays: parameters by timm-style name, in PyTorch's layout; never changed.
        image_size: pixels, one integer or (h, w); None keeps it.
        patch_size: likewise; another patch size for the same image means another grid.
        rule: rule that fits the position table; None means the schema's ``pos_embed_resize``, which
            the new schema keeps in any case.
        patch_rule: rule by which images grow or shrink along with the patch; see
            `resample.patch_matrices`.

    Returns:
        The schema of the new sizes, and all the parameters: computed in float64, each of its old
        type, sharing no memory with `arrays`.

    Raises:
        ConfigError: a rule is unknown, sizes do not go together, or a norm of flattened patches
            would need another patch size.
        InputError: the rule is ``leading_rows``, and the position table has too few rows.
        WeightsError: a tensor to be fitted does not have the shape that the schema gives it.
    """
    rule = config.pos_embed_resize if rule is None else rule
    check_rule(rule)
    check_rule(patch_rule, PATCH_RULES, where="patch_rule")
    resized = config.replace(
        image_size=config.image_size if image_size is None else image_size,
        patch_size=config.patch_size if patch_size is None else patch_size,
    )
    if config.patch_input_norm and config.patch_size != resized.patch_size:
        raise ConfigError(
            f"patch_size = {resized.patch_size} for weights of patch_size = {config.patch_size}, but"
            " patch_input_norm = true, and a norm of flattened patches has no equal at another size;"
            " keep the patch size"
        )

    def fitted(name: str, array: np.ndarray) -> np.ndarray:
        if config.patch_size != resized.patch_size and name == "patch_embed.proj.weight":
            return _patch_kernel(config, resized, name, array, patch_rule)
        if config.grid == resized.grid:
            return array
        if name == "pos_embed" and config.pos_embed == "learned" and config.pos_embed_grid is None:
            return _position_table(config, resized, name, array, rule)
        if name.endswith(".rel_pos_bias.table"):
            return _relative_table(config, resized, name, array)
        return array

    return resized, {
        name: np.array(fitted(name, array), dtype=array.dtype, order="C")
        for name, array in arrays.items()
    }


def _position_table(
    old: ViTConfig, new: ViTConfig, name: str, table: np.ndarray, rule: Resampling
) -> np.ndarray:
    """Fit a table (1, P + N, D) to (1, P + N', D)."""
    _check_shape(name, table, (1, old.num_prefix_rows + old.num_patches, old.hidden_size))
    return resample_rows(table[0], old.grid, new.grid, rule, old.num_prefix_rows)[None]


def _patch_kernel(
    old: ViTConfig, new: ViTConfig, name: str, kernel: np.ndarray, rule: Resampling
) -> np.ndarray:
    """Fit a kernel (D, C, ph, pw), or (D, ph * pw * C) in the schema's order, to another patch."""
    D, C = old.hidden_size, old.in_channels
    matrices = patch_matrices(old.patch_size, new.patch_size, rule)
    if old.patch_embed == "conv":
        _check_shape(name, kernel, (D, C, *old.patch_size))
        return apply_matrices(matrices, kernel)  # (D, C, ph', pw')
    _check_shape(name, kernel, (D, old.patch_dim))
    if old.patch_embed == "linear_chw":
        kernel = apply_matrices(matrices, kernel.reshape(D, C, *old.patch_size))  # (D, C, ph', pw')
    else:
        kernel = kernel.reshape(D, *old.patch_size, C).transpose(0, 3, 1, 2)  # (D, C, ph, pw)
        kernel = apply_matrices(matrices, kernel).transpose(0, 2, 3, 1)  # (D, ph', pw', C)
    return kernel.reshape(D, new.patch_dim)


def _relative_table(old: ViTConfig, new: ViTConfig, name: str, table: np.ndarray) -> np.ndarray:
    """Fit a table ((2 gh - 1) (2 gw - 1) + 3, h), offsets row by row and the class token's rows last."""
    sides = 2 * old.grid[0] - 1, 2 * old.grid[1] - 1
    _check_shape(name, table, (sides[0] * sides[1] + _CLASS_ROWS, old.num_heads))
    offsets, class_rows = np.split(table, [sides[0] * sides[1]])
    offsets = offsets.T.reshape(-1, *sides)  # (h, 2 gh - 1, 2 gw - 1)
    offsets = apply_matrices(relative_matrices(old.grid, new.grid), offsets)
    return np.concatenate([offsets.reshape(old.num_heads, -1).T, class_rows.astype(np.float64)])


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise WeightsError(
            f"{name}: shape {array.shape} in the weights, {shape} in the schema they were given with;"
            " give the schema the weights were made for"
        )
