"""The authors' own files of DeiT, DeiT III and MAE, which timm's names come from.

Each holds its tensors under ``model``, and says nothing else: heads and epsilon are those of the
published models. Only those of DeiT III and MAE's pretraining can be told by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect
from parity.porting.dialects.table import layer, row
from vit_config import Preprocess, ViTConfig
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD

BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
TABLE = (
    *row("cls_token", "cls_token"),
    *row("pos_embed", "pos_embed"),
    *layer("patch_embed.proj", "patch_embed.proj"),
    *(each for name in BLOCK for each in layer(f"blocks.{{i}}.{name}", f"blocks.{{i}}.{name}")),
    *layer("norm", "norm"),
    *layer("fc_norm", "fc_norm"),
    *layer("head", "head"),
)
DISTILLED = (*TABLE, *row("dist_token", "dist_token"), *layer("head_dist", "head_dist"))
SCALED = (
    *TABLE,
    *row("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1"),
    *row("blocks.{i}.ls2.gamma", "blocks.{i}.gamma_2"),
)
HEADS = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1280: 16}
"""Of the published models, by width."""


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if HEADS.get(cfg.hidden_size) != cfg.num_heads:
        yield (
            "nothing in its files says the heads, which are those of the published models;"
            f" {cfg.num_heads} of width {cfg.hidden_size} is none of them"
        )


def _mae_limits(cfg: ViTConfig) -> Iterator[str]:
    yield from _limits(cfg)
    if (cfg.pool == "mean") != (cfg.final_norm == "post_pool"):
        yield (
            "its model pools the class token after the norm, or the mean before it, not"
            f" {cfg.pool} with final_norm = {cfg.final_norm}"
        )


def _infer(fields: Mapping[str, Any]) -> dict[str, Any]:
    heads = HEADS.get(fields["hidden_size"])
    return {"num_heads": heads} if heads else {}


def _mae_infer(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**_infer(fields), "pool": "mean" if fields["final_norm"] == "post_pool" else "class"}


def _dialect(name: str, title: str, table: Any, **own: Any) -> Dialect:
    conventions = {"norm_eps": 1e-6, "act": "gelu", "pos_embed_resize": "bicubic", **own.pop("said", {})}
    return Dialect(
        name=name,
        title=title,
        family=name,
        tables=(table,),
        conventions=conventions,
        container="torch",
        weights_name="model.pth",
        wrapper="model",
        **{"infer": _infer, "limits": _limits, **own},
    )


def _preprocess(crop_fraction: float) -> Preprocess:
    return Preprocess(mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=crop_fraction)


DIALECTS = (
    _dialect(
        "deit3",
        "DeiT III",
        SCALED,
        marks=(
            "cls_token",
            "pos_embed",
            "blocks.0.gamma_1",
            "blocks.0.gamma_2",
            "blocks.0.attn.qkv.bias",
            "!norm_pre.weight",
            "!reg_token",
            "!rope.freqs",
            "!mask_token",
        ),
        can={
            "pos_embed_prefix": ("none",),
            "layer_scale": lambda cfg: (1.0,) if cfg.layer_scale is None else (cfg.layer_scale,),
        },
        said={"pool": "class"},
        preprocess=_preprocess(1.0),
    ),
    _dialect(
        "mae",
        "MAE",
        TABLE,
        marks=("cls_token", "pos_embed", "mask_token", "decoder_embed.weight"),
        can={"pool": ("class", "mean"), "final_norm": ("pre_pool", "post_pool")},
        limits=_mae_limits,
        infer=_mae_infer,
        ignored=("decoder_*", "mask_token"),
        preprocess=_preprocess(0.875),
    ),
    _dialect(
        "deit",
        "DeiT",
        DISTILLED,
        marks=(),  # timm's names; taken for DeiT's only if the user says so
        can={"distill_token": ANY},
        said={"pool": "class"},
        preprocess=_preprocess(0.875),
    ),
)
