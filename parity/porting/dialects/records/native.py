"""The authors' own files of DeiT, DeiT III and MAE, from which timm's names come.

Each holds its tensors under ``model`` and states nothing else. All constructors of one code base share
epsilon, activation and pooling; the number of heads varies and has to be given. Only files of DeiT III
and of MAE's pretraining can be recognised by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
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


def _mae_limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.grid[0] != cfg.grid[1]:
        yield f"its position table is of a square, not of a grid of {cfg.grid}"
    if (cfg.pool == "mean") != (cfg.final_norm == "post_pool"):
        yield (
            "its model pools the class token after the norm, or the mean before it, not"
            f" {cfg.pool} with final_norm = {cfg.final_norm}"
        )


def _mae_follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    pool = "mean" if fields["final_norm"] == "post_pool" else "class"
    return by_code("models_vit.py: forward_features: global_pool has fc_norm", pool=pool)


def _dialect(name: str, title: str, table: Any, *, code: str, resized: str, **own: Any) -> Dialect:
    """Build a dialect; `code` is the file of its constructors, `resized` what resizes positions."""
    return Dialect(
        name=name,
        title=title,
        family=name,
        tables=(table,),
        fixed={
            **by_code(f"{code}: norm_layer = partial(nn.LayerNorm, eps=1e-6)", norm_eps=1e-6),
            **by_code("timm.layers.Mlp: act_layer = nn.GELU", act="gelu"),
            **by_code(resized, pos_embed_resize="bicubic"),
            **own.pop("fixed", {}),
        },
        square=resized,
        container="torch",
        weights_name="model.pth",
        wrapper="model",
        **own,
    )


DEIT_RESIZES = (
    "deit/main.py: orig_size = int((pos_embed_checkpoint.shape[-2] - num_extra_tokens) ** 0.5)"
)
MAE_RESIZES = "mae/util/pos_embed.py: interpolate_pos_embed"
CLASS_TOKEN = "forward_features: return x[:, 0]"


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
        code="deit/models_v2.py",
        resized=DEIT_RESIZES,
        fixed=by_code(f"deit/models_v2.py: {CLASS_TOKEN}", pool="class"),
        preprocess=_preprocess(1.0),
    ),
    _dialect(
        "mae",
        "MAE",
        TABLE,
        marks=("cls_token", "pos_embed", "mask_token", "decoder_embed.weight"),
        can={"pool": ("class", "mean"), "final_norm": ("pre_pool", "post_pool")},
        limits=_mae_limits,
        code="mae/models_mae.py, models_vit.py",
        resized=MAE_RESIZES,
        follows=_mae_follows,
        ignored=("decoder_*", "mask_token"),
        preprocess=_preprocess(0.875),
    ),
    _dialect(
        "deit",
        "DeiT",
        DISTILLED,
        marks=(),  # timm's names; taken for DeiT's only if the user says so
        can={"distill_token": ANY},
        code="deit/models.py",
        resized=DEIT_RESIZES,
        fixed=by_code(f"deit/models.py: {CLASS_TOKEN}", pool="class"),
        preprocess=_preprocess(0.875),
    ),
)
