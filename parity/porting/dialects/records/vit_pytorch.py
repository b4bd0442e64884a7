"""lucidrains' vit-pytorch: its ``ViT`` and its ``SimpleViT``.

Both flatten patches as (row, column, channel) and normalise them before and after the projection. The
width of a head is a separate option; queries, keys and values have no bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code, whole_patches
from parity.porting.dialects.table import Table, layer, row
from vit_config import ViTConfig

ATTENTION, MLP = "transformer.layers.{i}.0", "transformer.layers.{i}.1.net"


def _table(head: str, out: str, *mlp: int) -> Table:
    first, second = mlp
    return (
        *row("cls_token", "cls_token", "r D -> 1 r D"),
        *row("pos_embed", "pos_embedding", "n D -> 1 n D"),
        *layer("patch_embed.norm_in", "to_patch_embedding.1"),
        *layer("patch_embed.proj", "to_patch_embedding.2"),
        *layer("patch_embed.norm", "to_patch_embedding.3"),
        *layer("blocks.{i}.norm1", f"{ATTENTION}.norm"),
        *row("blocks.{i}.attn.qkv.weight", f"{ATTENTION}.to_qkv.weight"),
        *layer("blocks.{i}.attn.proj", f"{ATTENTION}.{out}"),
        *layer("blocks.{i}.norm2", f"{MLP}.0"),
        *layer("blocks.{i}.mlp.fc1", f"{MLP}.{first}"),
        *layer("blocks.{i}.mlp.fc2", f"{MLP}.{second}"),
        *layer("norm", "transformer.norm"),
        *layer("head", head),
    )


VIT = _table("mlp_head", "to_out.0", 1, 4)
SIMPLE = (*row("reg_token", "register_tokens", "r D -> 1 r D"), *_table("linear_head", "to_out", 1, 3))
BATCHED = tuple(replace(each, layout="") for each in VIT)  # token and positions have a leading axis of 1


def _follows_vit(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    has_token = fields["class_token"]
    return (
        by_code("vit.py: num_cls_tokens = 1 if pool == 'cls' else 0", pool="class") if has_token else {}
    )


def _follows_older(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Include the class token in a pooled mean; the file does not say whether the model pools a mean."""
    mean = fields.get("pool") == "mean"
    return by_code("vit.py: x.mean(dim = 1)", pool_prefix=True) if mean else {}


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if not cfg.num_classes:
        yield "its model without a head pools nothing (num_classes is 0)"
    if cfg.attention_out_proj == (cfg.num_heads == 1 and cfg.head_dim == cfg.hidden_size):
        yield "its attention has an output projection, unless one head fills the token"


def _vit_limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.class_token != (cfg.pool == "class"):
        yield f"its model has a class token if that is pooled, and none if not; here pool = {cfg.pool}"
    yield from _limits(cfg)


def _older_limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.pool_prefix != (cfg.pool == "mean"):
        yield "its mean is one of the class token too"
    yield from _limits(cfg)


def _simple_limits(cfg: ViTConfig) -> Iterator[str]:
    if not cfg.num_classes:
        yield "its model always has a head (num_classes is 0)"


def _empty_token(cfg: ViTConfig) -> np.ndarray | None:
    """Return the empty parameter that a ViT without a class token keeps for it."""
    return None if cfg.class_token else np.zeros((0, cfg.hidden_size))


def _dialect(name: str, title: str, table: Table, **own: Any) -> Dialect:
    can = {
        "patch_embed": ("linear_hwc",),
        "patch_input_norm": (True,),
        "patch_norm": (True,),
        "attention_head_dim": ANY,
        "qkv_bias": (False,),
        "norm_eps": (1e-5,),
        "patch_remainder": whole_patches,
        **own.pop("can"),
    }
    return Dialect(
        name=name,
        title=title,
        family="vit-pytorch",
        tables=(table,),
        can=can,
        fixed={
            **by_code("vit.py: (h p1) (w p2) -> (h w) (p1 p2 c)", patch_embed="linear_hwc"),
            **by_code("torch.nn.LayerNorm: eps = 1e-5", norm_eps=1e-5),
            **by_code("vit.py: FeedForward: nn.GELU", act="gelu"),
            **own.pop("fixed", {}),
        },
        container="torch",
        weights_name="model.pt",
        **own,
    )


PATCH, OUT = "to_patch_embedding.2.weight", "transformer.layers.0.0.to_out.0.weight"
ONE_HEAD = {"attention_out_proj": (False,), "attention_out_bias": (False,)}
VIT_HAS = {"class_token": ANY, "pool": ("class", "mean")}
DIALECTS = (
    _dialect(
        "vit-pytorch",
        "vit-pytorch's ViT",
        VIT,
        marks=("cls_token:2", "pos_embedding:2", PATCH, OUT),
        can=VIT_HAS,
        limits=_vit_limits,
        follows=_follows_vit,
        buffers={"cls_token": _empty_token},
    ),
    _dialect(
        "vit-pytorch-one-head",
        "vit-pytorch's ViT of one head",
        VIT,
        marks=("cls_token:2", "pos_embedding:2", PATCH, f"!{OUT}"),
        can={**VIT_HAS, **ONE_HEAD},
        limits=_vit_limits,
        fixed=by_code("vit.py: project_out = not (heads == 1 and dim_head == dim)", num_heads=1),
        follows=_follows_vit,
        buffers={"cls_token": _empty_token},
    ),
    _dialect(
        "vit-pytorch-batched",
        "the ViT of older vit-pytorch",
        BATCHED,
        marks=("cls_token:3", "pos_embedding:3", PATCH, OUT),
        can={"pool": ("class", "mean"), "pool_prefix": ANY},
        limits=_older_limits,
        follows=_follows_older,
    ),
    _dialect(
        "simple-vit-pytorch",
        "vit-pytorch's SimpleViT",
        SIMPLE,
        marks=(PATCH, "linear_head.weight", "!pos_embedding"),
        can={
            "class_token": (False,),
            "register_tokens": ANY,
            "pool": ("mean",),
            "pos_embed": ("sincos2d_simple",),
            "attention_out_bias": (False,),
        },
        limits=_simple_limits,
        fixed=by_code(
            "simple_vit.py: posemb_sincos_2d; x.mean(dim = 1)", pos_embed="sincos2d_simple", pool="mean"
        ),
    ),
)
