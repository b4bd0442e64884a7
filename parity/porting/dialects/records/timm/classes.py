"""Arguments of timm's model classes, a table for each class."""

from __future__ import annotations

from typing import Any

from parity.porting.dialects.dialect import Unsaid, kv_heads
from parity.porting.dialects.records.timm import gemma4
from parity.porting.dialects.records.timm.argument import (
    EPS,
    NEEDLESS,
    TENSORS_TELL,
    Argument,
    Fields,
    gain,
    no_effect,
    only,
    plain,
    ratio,
    same,
    shown,
    size,
    training,
    word,
)
from parity.porting.dialects.records.timm.rules import TABLE_RULES
from vit_config import ConfigError, ViTConfig


def _norm(cfg: ViTConfig) -> Any:
    return cfg.norm if cfg.norm_eps == EPS else NEEDLESS  # the architecture fixes any other epsilon


def _patch_norm(value: Any, known: Fields) -> Fields:
    if known["norm_eps"] != EPS:
        raise ConfigError(f"{value!r} has an epsilon of {EPS}, the other norms of {known['norm_eps']}")
    return {"patch_norm": True}


def _pre_norm(value: Any, known: Fields) -> Fields:
    return {"pre_norm": value, "patch_bias": not value}


POOLS = {"token": "class", "avg": "mean", "map": "map"}
OTHER_POOLS = ("", "max", "avgmax")
"""Poolings that no schema can express."""


def _pool(value: Any, known: Fields) -> Fields:
    """Return the fields that global_pool means.

    If no schema can express it and the model has no head, the user may choose another pooling: the
    tokens are the same.
    """
    if value in OTHER_POOLS and not known["num_classes"]:
        why = "no schema pools so; its tokens are the same whatever is pooled"
        ways = ("class", "mean")[not known["class_token"] :]
        unsaid = Unsaid(f"global_pool = {value!r}", why, ways)
        return {"pool": unsaid, "final_norm": TENSORS_TELL}
    return word("pool", POOLS, "final_norm").meant(value, known)


def _shared_table(value: Any, known: Fields) -> Fields:
    """Read a table that all blocks share as a copy in each; refuse it beside tables of the blocks."""
    if value and known["rel_pos_bias"]:
        raise ConfigError(f"{value!r} beside tables of each block, whose sum is no table of its own")
    return {"rel_pos_bias": True} if value else {}


GLOBAL_POOL = word("pool", POOLS)._replace(meant=_pool)
PREFIX = ("pos_embed_prefix",)
NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm", "LayerNorm": "layernorm", "RmsNorm": "rmsnorm"}

COMMON = {
    "img_size": size("image_size"),
    "patch_size": size("patch_size"),
    "in_chans": same("in_channels"),
    "num_classes": same("num_classes"),
    "embed_dim": same("hidden_size", "mlp_dim", "pool_mlp_dim"),
    "depth": same("depth"),
    "num_heads": same("num_heads"),
    "drop_rate": training("dropout_head"),
    "pos_drop_rate": training("dropout_embed"),
    "patch_drop_rate": training("dropout_patch"),
    "attn_drop_rate": training("dropout_attention"),
    "proj_drop_rate": training("dropout_attention_out", "dropout_mlp_inner", "dropout_mlp_outer"),
    "drop_path_rate": training("stochastic_depth"),
}
VIT = {
    **COMMON,
    "mlp_ratio": shown(
        lambda cfg: ratio(cfg.mlp_dim * (1 + (cfg.mlp == "swiglu_packed")), cfg.hidden_size),
        "mlp_dim",
        "pool_mlp_dim",
    ),
    "qkv_bias": same("qkv_bias"),
    "qk_norm": same("qk_norm"),
    "scale_attn_norm": same("attention_norm"),
    "scale_mlp_norm": same("mlp_norm"),
    "proj_bias": Argument(
        lambda cfg: cfg.mlp_bias, lambda value, known: {"attention_out_bias": value, "mlp_bias": value}
    ),
    "init_values": gain(zero=True),
    "class_token": same("class_token", *PREFIX),
    "pos_embed": word("pos_embed", {"learn": "learned", "none": "none", "": "none"}),
    "no_embed_class": shown(lambda cfg: cfg.num_prefix_rows == 0, *PREFIX),
    "reg_tokens": same("register_tokens", *PREFIX),
    "pre_norm": Argument(lambda cfg: cfg.pre_norm, _pre_norm),
    "global_pool": GLOBAL_POOL,
    "final_norm": shown(lambda cfg: cfg.final_norm != "none", "final_norm"),
    "fc_norm": shown(lambda cfg: cfg.final_norm == "post_pool", "final_norm"),
    "pool_include_prefix": Argument(
        lambda cfg: cfg.pool_prefix,
        lambda value, known: {
            "pool_prefix": value and known["pool"] in ("mean", "map")
        },  # it has no effect on one pooled token
    ),
    "dynamic_img_size": same("dynamic_image_size"),
    "dynamic_img_pad": only(False),
    "norm_layer": Argument(
        _norm, lambda value, known: {**word("norm", NORMS).meant(value, known), "norm_eps": EPS}
    ),
    "embed_norm_layer": Argument(lambda cfg: _norm(cfg) if cfg.patch_norm else None, _patch_norm),
    "act_layer": word(
        "act",
        {name: name for name in ("gelu", "gelu_tanh", "quick_gelu", "silu", "relu")} | {"swish": "silu"},
    ),
    "attn_layer": word("attention", {"attn": "fused", "": "fused", "diff": "differential"}),
    "weight_init": no_effect(),
    "fix_init": no_effect(),
    "use_naflex": only(False),
}
ROPES = {"cat": "axial", "dinov3": "centered", "mixed": "mixed"}
ROPE_ARGUMENTS = (
    "use_rot_pos_emb", "rope_type", "rope_temperature", "rope_grid_offset", "rope_grid_indexing",
    "rope_rotate_half", "ref_feat_shape",
)  # fmt: skip
GATED = ("mlp", "mlp_norm", "mlp_dim")
EVA = {
    **COMMON,
    "mlp_ratio": shown(lambda cfg: ratio(cfg.mlp_dim, cfg.hidden_size), "mlp_dim", "pool_mlp_dim"),
    "num_kv_heads": Argument(
        lambda cfg: None if cfg.num_kv_heads is None else list(cfg.kv_heads),
        lambda value, known: {"num_kv_heads": kv_heads(value, known["num_heads"])},
    ),
    "qkv_bias": shown(lambda cfg: cfg.qkv_bias, "qkv_bias", "k_bias"),
    "attn_type": shown(
        lambda cfg: "rope" if (cfg.qkv_bias and cfg.k_bias) or cfg.num_kv_heads else "eva",
        "qkv_bias",
        "k_bias",
    ),
    "qk_norm": same("qk_norm"),
    "swiglu_mlp": Argument(
        lambda cfg: cfg.mlp != "mlp",
        lambda value, known: {**dict.fromkeys(GATED, TENSORS_TELL), "act": "silu" if value else "gelu"},
    ),
    "swiglu_align_to": shown(lambda cfg: int(cfg.mlp == "swiglu" and not cfg.mlp_norm), *GATED),
    "scale_mlp": shown(lambda cfg: cfg.mlp_norm, *GATED),
    "scale_attn_inner": same("attention_norm"),
    "init_values": gain(zero=False),
    "attn_only_layer_scale": shown(lambda cfg: cfg.layer_scale_on == "attention", "layer_scale_on"),
    "class_token": same("class_token", *PREFIX),
    "num_reg_tokens": same("register_tokens", *PREFIX),
    "no_embed_class": shown(lambda cfg: cfg.num_prefix_rows == 0, *PREFIX),
    "use_abs_pos_emb": word("pos_embed", {True: "learned", False: "none"}),
    "use_post_norm": word("block", {False: "pre_norm", True: "res_post"}),
    "use_pre_transformer_norm": Argument(lambda cfg: cfg.pre_norm, _pre_norm),
    "global_pool": GLOBAL_POOL,
    "use_post_transformer_norm": shown(lambda cfg: cfg.final_norm == "pre_pool", "final_norm"),
    "use_fc_norm": shown(lambda cfg: cfg.final_norm == "post_pool", "final_norm"),
    "attn_pool_num_heads": Argument(
        lambda cfg: cfg.pool_num_heads or cfg.num_heads if cfg.pool == "map" else NEEDLESS,
        lambda value, known: {"pool_num_heads": None if value == known["num_heads"] else value},
    ),
    "attn_pool_mlp_ratio": shown(
        lambda cfg: ratio(cfg.pool_mlp.mlp_dim, cfg.hidden_size) if cfg.pool == "map" else NEEDLESS,
        "pool_mlp_dim",
    ),
    "dynamic_img_size": same("dynamic_image_size"),
    "dynamic_img_pad": only(False),
    "qkv_fused": no_effect(),  # the names of the tensors show it
    **{name: no_effect() for name in ROPE_ARGUMENTS},  # read together by `rope_of`
    **{f"rope_{name}_coords": no_effect() for name in ("shift", "jitter", "rescale")},
    "head_init_scale": no_effect(),
    "use_naflex": only(False),
}
BEIT = {
    **{name: each for name, each in COMMON.items() if name != "patch_drop_rate"},
    "mlp_ratio": EVA["mlp_ratio"],
    "qkv_bias": EVA["qkv_bias"],
    "swiglu_mlp": EVA["swiglu_mlp"],
    "scale_mlp": EVA["scale_mlp"],
    "init_values": gain(zero=True),
    "use_abs_pos_emb": EVA["use_abs_pos_emb"],
    "use_rel_pos_bias": same("rel_pos_bias"),
    "use_shared_rel_pos_bias": Argument(lambda cfg: NEEDLESS, _shared_table),
    "global_pool": GLOBAL_POOL,
    "use_fc_norm": EVA["use_fc_norm"],
    "head_init_scale": no_effect(),
}
TABLE_OPTIONS = ("pos_embed_interp_mode", "pos_embed_antialias", "pos_embed_align_corners")
"""Arguments by which ``NaFlexEmbeds`` fits its position table, in the order of `TABLE_RULES`."""


def _table_option(place: int) -> Argument:
    """Describe one of the three; read together by `arguments`."""

    def said(cfg: ViTConfig) -> Any:
        rule = TABLE_RULES.get(cfg.pos_embed_resize)
        return rule[place] if rule and cfg.pos_embed == "learned" else NEEDLESS

    return Argument(said, lambda value, known: {})


FLEX = {
    **{name: VIT[name] for name in COMMON},
    **{name: VIT[name] for name in ("mlp_ratio", "qkv_bias", "qk_norm", "scale_mlp_norm", "proj_bias")},
    **{
        name: VIT[name]
        for name in ("init_values", "class_token", "reg_tokens", "pre_norm", "global_pool")
    },
    **{name: VIT[name] for name in ("final_norm", "fc_norm", "pool_include_prefix", "dynamic_img_pad")},
    **{
        name: VIT[name]
        for name in ("norm_layer", "embed_norm_layer", "act_layer", "weight_init", "fix_init")
    },
    "scale_attn_inner_norm": VIT["scale_attn_norm"],
    "pos_embed": word(
        "pos_embed", {"learned": "learned", "factorized": "factorized", "none": "none", "": "none"}
    ),
    "pos_embed_grid_size": Argument(
        lambda cfg: NEEDLESS if cfg.pos_embed == "none" else list(cfg.table_grid),
        lambda value, known: {"pos_embed_grid": plain(value)},
    ),
    "pos_embed_ar_preserving": word("pos_embed_aspect", {False: "stretch", True: "keep"}),
    **{name: _table_option(place) for place, name in enumerate(TABLE_OPTIONS)},
    "attn_pool_num_heads": same("pool_num_heads"),
    "attn_pool_mlp_ratio": shown(
        lambda cfg: cfg.pool_mlp_dim and ratio(cfg.pool_mlp_dim, cfg.hidden_size), "pool_mlp_dim"
    ),
    "embed_proj_type": only("linear"),
    "attn_type": only("standard"),
    "patchify_channels_last": only(True),
    "use_key_only_attn_mask": no_effect(),  # on tokens that are no padding
    "enable_patch_interpolator": only(False),
}
CLASSES = {
    "vision_transformer": VIT, "deit": VIT, "eva": EVA, "beit": BEIT, "naflexvit": FLEX,
    "gemma4_vit": gemma4.ARGUMENTS,
}  # fmt: skip
"""Arguments of each module's class; an argument comes after those whose fields it needs."""
