"""Shrinking an architecture of timm in depth and width, with every switch left as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity.porting.dialects.records.timm import read_state
from vit_config import ViTConfig

DEPTH, HEADS, HEAD_DIM, POOL_HEADS, CLASSES = 3, 6, 8, 4, 11
GRID = (2, 3)
"""Rows and columns of patches in the small image, which is never square."""
TABLE = (4, 5)
"""Rows and columns of a position table of its own grid."""
PLACES = 17
"""Rows and columns of Gemma 4's position tables."""


def shrunk_arguments(cfg: ViTConfig, module: str) -> dict[str, Any]:
    """Return timm's arguments for an architecture's small model, from its schema and timm's module."""
    arguments: dict[str, Any] = {
        "img_size": _image_size(cfg),
        "depth": DEPTH,
        "embed_dim": HEADS * HEAD_DIM,
        "num_heads": HEADS,
        "num_classes": CLASSES if cfg.num_classes else 0,
    }
    if module == "eva" and cfg.block == "pre_norm":  # the one block that knows them; some list them all
        arguments["num_kv_heads"] = _kv_heads(cfg)
    if module == "gemma4_vit":
        width = round(HEADS * HEAD_DIM * cfg.mlp_dim / cfg.hidden_size)
        arguments |= {"head_dim": HEAD_DIM, "intermediate_size": width}
        arguments["position_embedding_size"] = PLACES
    elif cfg.pos_embed_grid is not None:
        arguments["pos_embed_grid_size"] = TABLE
    if cfg.pool_num_heads is not None:
        arguments["attn_pool_num_heads"] = POOL_HEADS
    return arguments


def shrunk_schema(cfg: ViTConfig, model: nn.Module) -> ViTConfig:
    """Return the schema of the small model; only the hidden widths are read from its tensors."""
    state = read_state(model.state_dict(), join=torch.cat)
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    width = HEADS * HEAD_DIM
    return cfg.replace(
        image_size=_image_size(cfg),
        depth=DEPTH,
        hidden_size=width,
        num_heads=HEADS,
        num_kv_heads=None if cfg.num_kv_heads is None else _kv_heads(cfg),
        mlp_dim=_mlp_dim(cfg, shapes, width),
        num_classes=CLASSES if cfg.num_classes else 0,
        pos_embed_grid=cfg.pos_embed_grid and ((PLACES,) * 2 if cfg.block == "sandwich" else TABLE),
        pool_num_heads=None if cfg.pool_num_heads is None else POOL_HEADS,
        pool_mlp_dim=None if cfg.pool_mlp_dim is None else shapes["attn_pool.mlp.fc1.weight"][0],
    )


def _image_size(cfg: ViTConfig) -> tuple[int, int]:
    """Return the size of a few patches, plus what the full image's patches leave over."""
    sides, window = zip(GRID, cfg.patch_size, cfg.image_size, strict=True), cfg.pool_window or 1
    height, width = (window * count * patch + full % patch for count, patch, full in sides)
    return height, width


def _kv_heads(cfg: ViTConfig) -> tuple[int, ...]:
    """Return the numbers of shared heads, as in the first, the middle and the last block."""
    blocks = (0, cfg.depth // 2, cfg.depth - 1)
    return tuple(HEADS // (cfg.num_heads // cfg.kv_heads[block]) for block in blocks)


def _mlp_dim(cfg: ViTConfig, shapes: dict[str, tuple[int, ...]], width: int) -> int:
    if cfg.block == "parallel":
        return shapes["blocks.0.in_proj.weight"][0] - 3 * width
    mlp = "blocks.0.ffns.0.mlp" if cfg.num_parallel > 1 else "blocks.0.mlp"
    return shapes[f"{mlp}.fc2.weight"][1]
