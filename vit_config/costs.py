"""The costs of a schema's model - parameters, FLOPs - known without building it."""

from __future__ import annotations

import math
from typing import NamedTuple

from vit_config.parameters import parameters
from vit_config.schema import ViTConfig


class Cost(NamedTuple):
    """The costs of a model."""

    parameters: int
    """Numbers in all its parameters."""
    flops: int
    """FLOPs of one image of the schema's size: two for each multiply-add of a matrix product or
    convolution, attention's products among them; elementwise work is not counted."""


def costs(cfg: ViTConfig) -> Cost:
    """Count the parameters and the FLOPs of a schema's model."""
    shapes = [each.shape for each in parameters(cfg).values() if each.kind != "fixed"]
    return Cost(sum(map(math.prod, shapes)), 2 * (_layers(cfg) + _attention(cfg) + _fitting(cfg)))


def _layers(cfg: ViTConfig) -> int:
    """Count the multiply-adds of all layers: a weight has one of each number for each token it sees."""
    tokens = {"patch_embed": cfg.num_patches, "blocks": cfg.num_patches + cfg.num_prefix_tokens}
    count = 0
    for name, each in parameters(cfg).items():
        if name.endswith("weight") and len(each.shape) > 1:
            seen = _pooled(cfg) if name == "attn_pool.kv.weight" else tokens.get(name.split(".")[0], 1)
            count += seen * math.prod(each.shape)
    return count


def _attention(cfg: ViTConfig) -> int:
    """Count the multiply-adds of queries with keys, and of what comes of them with values."""
    tokens = cfg.num_patches + cfg.num_prefix_tokens
    # a differential head has two attentions: queries and keys of half a width each, values whole in both
    products = 3 if cfg.attention == "differential" else 2
    blocks = cfg.depth * cfg.num_parallel * products * tokens**2 * cfg.attention_width
    return blocks + (2 * _pooled(cfg) * cfg.hidden_size if cfg.pool == "map" else 0)


def _pooled(cfg: ViTConfig) -> int:
    """Return the number of tokens that pooling sees."""
    return cfg.num_patches + (cfg.num_prefix_tokens if cfg.pool_prefix else 0)


def _fitting(cfg: ViTConfig) -> int:
    """Count the multiply-adds of fitting position tables to the grid: rows, then columns."""
    (height, width), (rows, columns) = cfg.grid, cfg.table_grid
    if not cfg.table_shapes or cfg.pos_embed_resize == "leading_rows":
        return 0
    if cfg.pos_embed == "factorized":  # also where the grid is the tables' own
        return (height * rows + width * columns) * cfg.hidden_size
    if cfg.grid == cfg.table_grid:
        return 0
    return (height * rows * columns + height * columns * width) * cfg.hidden_size
