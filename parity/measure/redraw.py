"""Random weights and batches for a check: no tensor keeps a value that would hide a fault."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vit_config import ViTConfig
from vit_config.init import Kind

SPREAD = 0.2
"""Standard deviation of a redrawn tensor, except for wide matrices."""
WIDE = 64
"""Inputs beyond which a matrix is drawn narrower, by sqrt(WIDE / inputs). With 0.2 throughout, attention
in a 512-wide model saturates and amplifies float64 rounding to 4e-12 in its gradients; so drawn, every
preset stays below 2e-14 and no branch is small enough to hide a fault."""


BOUNDS = ("bounds", "input_min", "input_max", "output_min", "output_max")
"""Last names of bounds of what a linear layer takes and gives; of several, the lowest first."""
BOUND = 1.5
"""Mean size of a redrawn bound: some values are beyond it, most are not."""
Weights = Callable[[str, Kind, tuple[int, ...]], np.ndarray]
"""Function that returns a parameter, in PyTorch's layout, by (name, kind of layer, shape)."""


class Batch(NamedTuple):
    """The inputs of both twins."""

    images: np.ndarray
    """(B, H, W, C) float64."""
    labels: np.ndarray
    """(B,) int64."""


def branch_norms(cfg: ViTConfig) -> int:
    """Return how many residual branches of a model end in a norm.

    Nothing normalises their sum: with gains of 1 it grows from block to block until attention saturates,
    and at depth 12 and width 768 a rounding error of 1e-16 ends as 7e-12.
    """
    return 2 * cfg.depth if cfg.block in ("res_post", "sandwich") else 0


def redraw(
    name: str, kind: Kind, shape: tuple[int, ...], seed: int, *, branch_norms: int = 0
) -> np.ndarray:
    """Draw one parameter anew: N(0, 0.2^2), plus 1 for the gains of norms and layer scales, and plus or
    minus 1.5 for bounds.

    Half of a fresh ViT's tensors are all zero or all one, and would hide an unused bias or swapped
    gains. A tensor's name seeds its random stream, so models that share names share weights.

    Args:
        branch_norms: result of the function of that name; the gains of those norms are divided by
            its square root, so that the branches add up to about 1.

    Returns:
        float64, in PyTorch's layout.
    """
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    gains = ("gamma", "gamma_1", "gamma_2", "std_scale")
    is_gain = (kind == "norm" and name.endswith("weight")) or name.endswith(gains)
    inputs = math.prod(shape[1:]) if kind in ("linear", "conv") and len(shape) > 1 else 1
    spread = SPREAD * min(1.0, math.sqrt(WIDE / inputs))
    values = np.asarray(stream.standard_normal(shape))
    values *= spread  # in place: copying a wide matrix costs as much as drawing it
    values += float(is_gain)
    if name.endswith(BOUNDS):
        low = np.arange(values.size).reshape(shape) % 2 == 0
        values += np.where(low & (not name.endswith("_max")), -BOUND, BOUND)
    ends_branch = re.fullmatch(r"(.+\.)?blocks\.\d+\.norm[124]\.weight", name)
    return values / math.sqrt(branch_norms) if branch_norms and ends_branch else values


def random_batch(cfg: ViTConfig, size: int, seed: int) -> Batch:
    """Draw standard normal images and random labels."""
    stream = np.random.default_rng([seed, 1])
    images = random_images((size, *cfg.image_size, cfg.in_channels), stream)
    return Batch(images, stream.integers(0, cfg.num_logits, size))


def random_images(shape: tuple[int, ...], stream: np.random.Generator | int) -> np.ndarray:
    """Draw the images of `random_batch`, (B, H, W, C), given their random stream or its seed."""
    drawn = np.random.default_rng([stream, 1]) if isinstance(stream, int) else stream
    return drawn.standard_normal(shape)
