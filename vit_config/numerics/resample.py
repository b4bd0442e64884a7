"""Fitting tables of one grid to another grid: each source's rule as matrices, in float64 numpy.

Every rule is separable: a table of values (h, w) becomes ``rows @ table @ columns.T``, with one matrix
of shape (new, old) per axis. Libraries give these rules the same names and different numbers, so each
rule here says whose it is; all but ``leading_rows`` are rules of one axis.

===================  ==============================================================================
bicubic_antialias    timm, DINOv2 with registers; PyTorch's ``antialias=True`` and ``jax.image``
bicubic              Hugging Face's ViT, CLIP and DINOv2, MAE; PyTorch's, whose cubic differs from
                     the one it takes with antialiasing
bilinear             timm for Google's .npz files, FlexiViT
bilinear_antialias   NaFlexViT, SigLIP 2
bilinear_corners     Google's vision_transformer and Big Vision: the corners keep their values
dinov2               DINOv2's own code: bicubic, but as if the new side were 0.1 longer
leading_rows         vit-pytorch: the first rows of the flattened table, whatever the grid
===================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, partial
from typing import Any, get_args

import numpy as np

from vit_config.choices import Resampling
from vit_config.errors import ConfigError, InputError
from vit_config.schema import ViTConfig

Grid = tuple[int, int]
Matrices = tuple[np.ndarray, np.ndarray]
"""The matrix of the rows and that of the columns, each (new, old) float64."""

RULES: tuple[Resampling, ...] = get_args(Resampling)
"""Rules for position tables."""
AXIS_RULES = tuple(rule for rule in RULES if rule != "leading_rows")
"""Rules with one matrix per axis."""
PATCH_RULES = tuple(rule for rule in AXIS_RULES if rule != "dinov2")
"""Rules for patches, which are images: DINOv2's rule is for its position table alone."""

_DINOV2_OFFSET = 0.1  # its interpolate_offset


def check_rule(rule: str, allowed: Collection[str] = RULES, *, where: str = "rule") -> None:
    """Refuse a rule that is not among those allowed.

    Raises:
        ConfigError: the rule is another; the message lists the allowed ones.
    """
    if rule not in allowed:
        raise ConfigError(f'{where} = "{rule}" is unknown; use one of {", ".join(allowed)}')


@lru_cache(maxsize=128)
def axis_matrix(rule: Resampling, old: int, new: int) -> np.ndarray:
    """Compute the matrix from `old` values along one axis to `new`; the identity if they are equal.

    DINOv2's is the exception: where one side of its grid changes, so does the other.

    Returns:
        (new, old) float64, read-only; each row sums to 1.

    Raises:
        ConfigError: the rule is not one of a single axis.
    """
    rows = taps(rule, old)
    weights = tap_weights(rule, old, new, np.arange(new)[:, None], rows)  # (new, taps)
    matrix = np.zeros((old, new))
    np.add.at(matrix, np.clip(rows, 0, old - 1), weights.T)
    return _read_only(matrix.T)


def taps(rule: Resampling, old: int) -> np.ndarray:
    """Return the numbers of the old values that new ones are sums of; numbers beyond an edge stand for
    the edge's value.

    Raises:
        ConfigError: the rule is not one of a single axis.
    """
    check_rule(rule, AXIS_RULES)
    beyond = 0 if rule.endswith("_antialias") else 2
    return np.arange(-beyond, old + beyond)


def tap_weights(rule: Resampling, old: int, new: Any, places: Any, taps: Any) -> Any:
    """Compute the weights of old values in the new values of some places along one axis.

    `new`, `places` and `taps` are arrays of numpy, JAX or PyTorch that broadcast together, so that
    each image of a batch may have a length of its own; nothing but operators is used.

    Args:
        new: numbers of new values.
        places: numbers of the places, below `new`.
        taps: result of the function of that name, along the last axis.

    Returns:
        The weights, of the common shape; they sum to 1 along the last axis.
    """
    if rule == "bilinear_corners":
        last = new - 1 + (new <= 1)  # 1 where there is a single new value
        return _linear(abs(places * (old - 1) - taps * last) / last)
    length = new + _DINOV2_OFFSET if rule == "dinov2" else new
    # whole numbers up to the division: float32 then rounds no centre of a pixel
    distance = abs((2 * places + 1) * old - (2 * taps + 1) * length) / 2
    if rule == "bilinear":
        return _linear(distance / length)
    if not rule.endswith("_antialias"):
        return _cubic(distance / length, a=-0.75)
    # a kernel as wide as a new pixel; beyond an edge is nothing, and the rest is weighted up
    kernel = _linear if rule == "bilinear_antialias" else partial(_cubic, a=-0.5)
    weights = kernel(distance / (length + (old - length) * (old > length)))
    return weights / weights.sum(-1)[..., None]


def grid_matrices(rule: Resampling, old_grid: Grid, new_grid: Grid) -> Matrices:
    """Return the matrices of both axes; identities for an unchanged grid, under every rule.

    Raises:
        ConfigError: the rule is not one of a single axis.
    """
    check_rule(rule, AXIS_RULES)
    if old_grid == new_grid:
        return np.eye(old_grid[0]), np.eye(old_grid[1])
    rows, columns = (axis_matrix(rule, old, new) for old, new in zip(old_grid, new_grid, strict=True))
    return rows, columns


def table_matrices(cfg: ViTConfig, grid: Grid) -> Matrices:
    """Return the matrices from a schema's learned position table to an image's grid, one per axis.

    Raises:
        ConfigError: the table is not fitted along its axes.
    """
    side = max(grid)
    is_whole_table = cfg.pos_embed == "learned" and grid == cfg.table_grid
    square = cfg.pos_embed_aspect == "keep" and not is_whole_table
    rows, columns = grid_matrices(cfg.pos_embed_resize, cfg.table_grid, (side, side) if square else grid)
    return rows[: grid[0]], columns[: grid[1]]


def relative_matrices(old_grid: Grid, new_grid: Grid) -> Matrices:
    """Compute the matrices of a table of the relative positions within a grid, by BEiT's rule.

    The old offsets -(g-1) ... g-1 are spread over the new ones in steps that grow geometrically from
    1 at the centre; between them values are linear, beyond them constant. BEiT's own code draws
    scipy's cubic spline between them; timm draws the line. No growth below 1.01 is tried: a side
    that stays as it is while the other changes is resampled too.

    Returns:
        Matrices of shape (2 new - 1, 2 old - 1) each.
    """
    if old_grid == new_grid:
        return np.eye(2 * old_grid[0] - 1), np.eye(2 * old_grid[1] - 1)
    rows, columns = (_relative_matrix(old, new) for old, new in zip(old_grid, new_grid, strict=True))
    return rows, columns


def patch_matrices(old_patch: Grid, new_patch: Grid, rule: Resampling = "bilinear") -> Matrices:
    """Compute the matrices that fit a patch kernel to another patch size (FlexiViT, arXiv 2212.08013).

    With B the resizing of a patch by `rule`, the kernel is multiplied by the pseudo-inverse of B's
    transpose: the new kernel gives, on resized patches, what the old one gave, exactly where no pixel is
    lost and by least squares elsewhere. B is a Kronecker product of two axes, and so is its inverse.
    FlexiViT's rule is ``bilinear``; timm's models take ``bicubic_antialias``.

    Raises:
        ConfigError: the rule is not one of a single axis, or is DINOv2's.
    """
    check_rule(rule, PATCH_RULES, where="patch_rule")
    rows, columns = (
        _kernel_matrix(rule, old, new) for old, new in zip(old_patch, new_patch, strict=True)
    )
    return rows, columns


def apply_matrices(matrices: Matrices, values: np.ndarray) -> np.ndarray:
    """Resample the last two axes: (..., h, w) to (..., h', w') float64."""
    rows, columns = matrices
    return rows @ values.astype(np.float64) @ columns.T


def resample_rows(
    table: np.ndarray, old_grid: Grid, new_grid: Grid, rule: Resampling, prefix_rows: int
) -> np.ndarray:
    """Fit a position table to another grid; the rows of tokens outside the grid stay as they are.

    Args:
        table: (P + N, D), the P = `prefix_rows` rows of prefix tokens first, then the grid row by row.

    Returns:
        (P + N', D) float64, a new array.

    Raises:
        ConfigError: the rule is unknown.
        InputError: the table is not of the old grid, or has fewer rows than ``leading_rows`` needs.
    """
    check_rule(rule)
    size, new_size = old_grid[0] * old_grid[1], new_grid[0] * new_grid[1]
    if table.ndim != 2 or len(table) != prefix_rows + size:
        raise InputError(
            f"the position table has shape {table.shape}, {_text(old_grid)} patches and {prefix_rows}"
            f" tokens before them need ({prefix_rows + size}, D); give the grid the table was made for"
        )
    table = table.astype(np.float64)
    if old_grid == new_grid:
        return table
    if rule == "leading_rows":
        if new_size > size:
            raise InputError(
                f"the position table has {size} rows for {_text(old_grid)} patches, {_text(new_grid)}"
                f' patches need {new_size}, and rule = "leading_rows" makes no new ones; use a smaller'
                " image or another rule"
            )
        return table[: prefix_rows + new_size].copy()
    prefix, patches = np.split(table, [prefix_rows])
    patches = patches.T.reshape(-1, *old_grid)  # (D, gh, gw)
    patches = apply_matrices(grid_matrices(rule, old_grid, new_grid), patches)  # (D, gh', gw')
    return np.concatenate([prefix, patches.reshape(-1, new_size).T])


def _linear(distance: Any) -> Any:
    return (1 - distance) * (distance < 1)


def _cubic(distance: Any, a: float) -> Any:
    """Compute Keys' convolution kernel (1981); Catmull and Rom's is a = -0.5."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return near * (distance <= 1) + far * ((distance > 1) & (distance < 2))


@lru_cache(maxsize=128)
def _kernel_matrix(rule: Resampling, old: int, new: int) -> np.ndarray:
    matrix = axis_matrix(rule, old, new)
    return matrix if old == new else _read_only(np.linalg.pinv(matrix).T)


@lru_cache(maxsize=128)
def _relative_matrix(old: int, new: int) -> np.ndarray:
    low, high = 1.01, 1.5
    growth = high
    while high - low > 1e-6:  # as coarse as in the source, or the last digits would differ
        growth = (low + high) / 2
        if (1 - growth ** (old - 1)) / (1 - growth) > new - 1:
            high = growth
        else:
            low = growth
    steps = np.cumsum(growth ** np.arange(old - 1))
    offsets = np.concatenate([-steps[::-1], [0], steps])  # (2 old - 1,)
    targets = np.arange(1 - new, new)
    matrix = np.stack([np.interp(targets, offsets, unit) for unit in np.eye(len(offsets))], axis=1)
    return _read_only(matrix)


def _read_only(matrix: np.ndarray) -> np.ndarray:
    matrix.setflags(write=False)
    return matrix


def _text(grid: Grid) -> str:
    return f"{grid[0]}x{grid[1]}"
