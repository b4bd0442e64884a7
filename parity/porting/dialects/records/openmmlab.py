"""OpenMMLab's ViT: mmpretrain's (MMClassification's before) and mmsegmentation's.

Their config is Python code beside the file; only it states heads, epsilon, activation and pooling.
"""

from __future__ import annotations

from collections.abc import Iterator

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.table import Table, layer, row
from vit_config import ViTConfig

BLOCK, CODE = "layers.{i}", "mmpretrain/models/backbones/vision_transformer.py"
OUTSIDE: Table = (
    *layer("patch_embed.proj", "patch_embed.projection"),
    *row("cls_token", "cls_token"),
    *row("pos_embed", "pos_embed"),
    *layer("norm_pre", "pre_norm"),
    *layer("norm", "ln1"),
    *layer("fc_norm", "ln2"),
    *layer("pre_logits", "head.layers.pre_logits"),
    *layer("blocks.{i}.norm1", f"{BLOCK}.ln1"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.ln2"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.ffn.layers.0.0"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.ffn.layers.1"),
)
CLASSIFIER = (*OUTSIDE, *layer("head", "head.layers.head"))
LINEAR = (*OUTSIDE, *layer("head", "head.fc"))  # of LinearClsHead
OWN: Table = (
    *layer("blocks.{i}.attn.qkv", f"{BLOCK}.attn.qkv"),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attn.proj"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.attn.gamma1.weight"),
    *row("blocks.{i}.ls2.gamma", f"{BLOCK}.ffn.gamma2.weight"),
)
PYTORCHS: Table = (
    *row("blocks.{i}.attn.qkv.weight", f"{BLOCK}.attn.attn.in_proj_weight"),
    *row("blocks.{i}.attn.qkv.bias", f"{BLOCK}.attn.attn.in_proj_bias"),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attn.attn.out_proj"),
)
MARKS = ("patch_embed.projection.weight", "layers.0.ln1.weight", "layers.0.ffn.layers.0.0.weight")
TRAINING = ("head.loss*", "data_preprocessor.*", "decode_head.*", "auxiliary_head.*", "neck.*")


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if (cfg.pool == "mean") != (cfg.final_norm == "post_pool"):
        yield (
            "its model pools the class token, or normalises the mean of the patches, not"
            f" {cfg.pool} with final_norm = {cfg.final_norm}"
        )
    if cfg.layer_scale_on != "both":
        yield f"it scales both branches (layer_scale_on = {cfg.layer_scale_on})"


def _dialect(name: str, title: str, *tables: Table, **own) -> Dialect:
    can = {
        "act": ANY,
        "norm_eps": ANY,
        "qkv_bias": ANY,
        "pre_norm": ANY,
        "patch_bias": lambda cfg: (not cfg.pre_norm,),
        "class_token": (True,),
        "pool": ("class", "mean"),
        "final_norm": ("pre_pool", "post_pool", "none"),
        **own.pop("can"),
    }
    return Dialect(
        name=name,
        title=title,
        family="openmmlab",
        tables=tables,
        can=can,
        limits=_limits,
        fixed=by_code(f"{CODE}: interpolate_mode = bicubic", pos_embed_resize="bicubic"),
        square=f"{CODE}: _prepare_pos_embed: int(np.sqrt(ckpt_pos_embed_shape[1] - ..))",
        body="backbone.",
        beside=("head.",),
        ignored=TRAINING,
        container="torch",
        weights_name="model.pth",
        **own,
    )


DIALECTS = (
    _dialect(
        "mmpretrain",
        "OpenMMLab's ViT of mmpretrain",
        (*OWN, *CLASSIFIER),
        (*OWN, *LINEAR),
        marks=(*MARKS, "layers.0.attn.qkv.weight"),
        can={"layer_scale": ANY, "head_hidden": ANY},
    ),
    _dialect(
        "mmsegmentation",
        "OpenMMLab's ViT of mmsegmentation",
        (*PYTORCHS, *CLASSIFIER),
        marks=(*MARKS, "layers.0.attn.attn.in_proj_weight"),
        can={"final_norm": ("pre_pool", "none")},
    ),
)
