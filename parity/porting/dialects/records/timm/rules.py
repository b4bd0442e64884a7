"""Values of each field that timm's model classes can compute, and fields that follow from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Fixed, by_code, whole_patches
from vit_config import ViTConfig


def _bias_of_patches(cfg: ViTConfig) -> tuple[bool, ...]:
    return (not cfg.pre_norm,)


def _bias_beside(other: str) -> Callable[[ViTConfig], tuple[bool, ...]]:
    """Return the values of a bias field: attention output and MLP have biases only together."""
    return lambda cfg: (True,) if getattr(cfg, other) or cfg.block == "parallel" else (True, False)


def vit_limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield why ``VisionTransformer`` and its distilled kind cannot be a model."""
    if cfg.distill_token and (cfg.register_tokens or cfg.pos_embed == "none" or not cfg.num_prefix_rows):
        yield "its DeiT with a distillation token has a position for every token, and no registers"
    hidden = cfg.mlp_dim * 2 if cfg.mlp == "swiglu_packed" else cfg.mlp_dim
    if cfg.pool == "map" and cfg.pool_mlp.mlp_dim != hidden:
        yield f"its attention pooling has an MLP as wide as the blocks' first layer, {hidden}"


def vit_follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return the fields that follow from others in ``VisionTransformer``."""
    fixed: dict[str, Fixed] = {}
    if "pos_embed" in fields and not fields["pre_norm"]:
        # without a position table, or with CLIP's norm, it may be a model of timm's eva
        fixed |= by_code("timm/models/vision_transformer.py: no rotary positions", rope=None)
    scaled = "layer_scale_on" in fields or fields.get("layer_scale") is not None
    if fields.get("num_parallel", 1) > 1 or scaled:
        fixed |= by_code("timm: VisionTransformer: ResPostBlock has no ls1", block="pre_norm")
    return fixed | _without_table(fields)


def _without_table(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return pos_embed = none for models with rotary positions and no table.

    Without rotary positions, a missing table may be one that was not saved.
    """
    turned = fields.get("rope") is not None
    where = "timm/models/eva.py: use_abs_pos_emb"
    return by_code(where, pos_embed="none") if turned and "pos_embed" not in fields else {}


VIT_CAN = {
    **dict.fromkeys(("class_token", "distill_token", "register_tokens", "pre_norm", "patch_norm"), ANY),
    **dict.fromkeys(("block", "num_parallel", "qkv_bias", "qk_norm", "attention_norm"), ANY),
    **dict.fromkeys(("mlp", "act", "mlp_norm", "layer_scale", "norm", "norm_eps", "final_norm"), ANY),
    **dict.fromkeys(("pool_prefix", "pool_mlp_dim"), ANY),
    "patch_bias": _bias_of_patches,
    "patch_remainder": lambda cfg: whole_patches(cfg) if cfg.dynamic_image_size else ANY,
    "pos_embed": ("learned", "none"),
    "pos_embed_prefix": ("auto", "all", "none"),
    "attention": ("fused", "differential"),
    "attention_out_bias": _bias_beside("mlp_bias"),
    "mlp_bias": _bias_beside("attention_out_bias"),
    "layer_scale_on": ("both",),
    "pool": ("class", "mean", "map"),
}


def _eva_act(cfg: ViTConfig) -> tuple[str, ...]:
    return ("gelu",) if cfg.mlp == "mlp" else ("silu",)


def _eva_mlp(cfg: ViTConfig) -> tuple[str, ...]:
    """Return the kinds of MLP: with a norm, gate and value are separate layers; without one an option
    decides, except in res_post blocks."""
    if cfg.mlp_norm:
        return ("mlp", "swiglu")
    return ("mlp", "swiglu_packed") if cfg.block == "res_post" else ("mlp", "swiglu", "swiglu_packed")


def eva_limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield why ``Eva`` cannot be a model."""
    if cfg.rope is not None and cfg.rope.pairs == "half_of_axis":
        yield 'it turns pairs that are interleaved, or a half of the head apart, not "half_of_axis"'
    if cfg.pool == "map" and cfg.act != "gelu":
        yield f"its attention pooling has a GELU, whatever the blocks have, here {cfg.act}"
    if set(cfg.kv_heads) != {cfg.num_heads} and not (cfg.k_bias and cfg.block == "pre_norm"):
        yield "its heads share keys in pre_norm blocks alone, where keys have a bias if queries have"


def eva_follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return the fields that follow from others in ``Eva`` and ``Beit``."""
    act = "gelu" if fields.get("mlp") == "mlp" else "silu"
    fixed = by_code("timm/layers/mlp.py: SwiGLU: nn.SiLU; Mlp: nn.GELU", act=act)
    if "pool" in fields:
        tokens = any(fields.get(name) for name in ("class_token", "register_tokens"))
        where = "timm/models/eva.py: forward_head: AttentionPoolLatent sees all tokens"
        fixed |= by_code(where, pool_prefix=fields["pool"] == "map" and tokens)
    if fields.get("rel_pos_bias") and "pos_embed" not in fields:
        fixed |= by_code("timm/models/beit.py: use_abs_pos_emb", pos_embed="none")
    if "layer_scale_on" in fields:
        fixed |= by_code("timm/models/eva.py: EvaBlockPostNorm has no gamma_1", block="pre_norm")
    return fixed | _without_table(fields)


EVA_CAN = {
    **dict.fromkeys(("class_token", "register_tokens", "pre_norm", "rope", "qkv_bias", "k_bias"), ANY),
    **dict.fromkeys(("attention_norm", "mlp_norm", "layer_scale", "layer_scale_on", "norm"), ANY),
    **dict.fromkeys(("norm_eps", "final_norm", "pool_num_heads", "pool_mlp_dim"), ANY),
    "patch_bias": _bias_of_patches,
    "pos_embed": ("learned", "none"),
    "pos_embed_prefix": ("auto", "all", "none"),
    "block": ("pre_norm", "res_post"),
    "qk_norm": lambda cfg: (False,) if cfg.block == "res_post" else (False, True),
    "mlp": _eva_mlp,
    "act": _eva_act,
    "pool": ("class", "mean", "map"),
    "pool_prefix": lambda cfg: (cfg.pool == "map" and cfg.num_prefix_tokens > 0,),
}
TABLE_RULES = {
    "bicubic_antialias": ("bicubic", True, False),
    "bicubic": ("bicubic", False, False),
    "bilinear_antialias": ("bilinear", True, False),
    "bilinear": ("bilinear", False, False),
    "bilinear_corners": ("bilinear", False, True),
}
"""Interpolation mode, antialiasing and aligned corners by which ``NaFlexEmbeds`` fits its table."""


def flex_limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield why ``NaFlexVit`` cannot be a model."""
    if cfg.pos_embed == "factorized" and cfg.pos_embed_resize != "bilinear":
        yield f"its factorized tables are fitted by bilinear, not {cfg.pos_embed_resize}"


def flex_follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return the fields that follow from others in ``NaFlexVit``."""
    where = "timm/models/naflexvit.py: NaFlexEmbeds"
    if fields.get("pos_embed") == "factorized":
        return by_code(f"{where}: _interp1d", pos_embed_resize="bilinear")
    return {}


def _flex_prefix(cfg: ViTConfig) -> tuple[str, ...]:
    return ("none",) if cfg.pos_embed == "learned" and cfg.num_prefix_tokens else ("auto",)


FLEX_CAN = {
    **dict.fromkeys(("class_token", "register_tokens", "pre_norm", "patch_norm", "qkv_bias"), ANY),
    **dict.fromkeys(("qk_norm", "attention_norm", "act", "mlp_norm", "layer_scale", "norm"), ANY),
    **dict.fromkeys(("norm_eps", "final_norm", "pool_prefix", "pool_num_heads", "pool_mlp_dim"), ANY),
    "patch_embed": ("linear_hwc",),
    "patch_bias": _bias_of_patches,
    "pos_embed": ("learned", "factorized", "none"),
    "pos_embed_grid": lambda cfg: (None,) if cfg.pos_embed == "none" else (cfg.table_grid,),
    "pos_embed_aspect": ("stretch", "keep"),
    "pos_embed_resize": tuple(TABLE_RULES),
    "pos_embed_prefix": _flex_prefix,
    "attention_out_bias": _bias_beside("mlp_bias"),
    "mlp_bias": _bias_beside("attention_out_bias"),
    "layer_scale_on": ("both",),
    "pool": ("class", "mean", "map"),
}
BEIT_CAN = {
    **dict.fromkeys(("qkv_bias", "mlp_norm", "layer_scale", "norm", "norm_eps"), ANY),
    "rel_pos_bias": (True,),
    "pos_embed": ("learned", "none"),
    "pos_embed_prefix": ("auto", "all"),
    "k_bias": lambda cfg: (not cfg.qkv_bias,),
    "mlp": ("mlp", "swiglu"),
    "act": _eva_act,
    "layer_scale_on": ("both",),
    "final_norm": ("pre_pool", "post_pool"),
    "pool": ("class", "mean"),
}
