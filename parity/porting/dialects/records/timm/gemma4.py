"""timm's Gemma 4 image towers: their tensors, what their classes can compute, and their arguments.

The encoder keeps the names of transformers' tower but for those of its blocks; the classifier holds an
encoder. Vectors by which an encoder standardises what it pools are left out of a classifier, which never
uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import by_code
from parity.porting.dialects.records.gemma4 import CAN, NORMS, TOWER
from parity.porting.dialects.records.timm.argument import (
    NEEDLESS,
    Argument,
    Fields,
    no_effect,
    only,
    same,
    shown,
    size,
    training,
    word,
)
from parity.porting.dialects.table import add_prefix, layer, respell_names

ENCODER = respell_names(
    TOWER,
    {
        "patch_embedder.": "patch_embed.",
        "encoder.layers.": "blocks.",
        ".self_attn.": ".attn.",
        **{f".{name}.": f".norm{number}." for number, name in enumerate(NORMS, 1)},
    },
)
CLASSIFIER = (
    *add_prefix("encoder.", tuple(each for each in ENCODER if "std_" not in each.theirs[0])),
    *layer("head", "head"),
)
UNUSED = ("encoder.std_bias", "encoder.std_scale")
"""Vectors of a classifier's encoder that the classifier never uses."""


CLASSIFIER_CAN = {
    **CAN,
    "final_norm": ("post_pool", "none"),
    "final_norm_affine": lambda cfg: (cfg.final_norm == "none",),
    "pool": ("mean",),
}


def classifier_follows(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the final norm has a gain, which follows from whether there is one."""
    where = "timm/models/gemma4_vit.py: Gemma4VitClassifier: RmsNorm(affine=False)"
    known = "final_norm" in fields
    return by_code(where, final_norm_affine=fields["final_norm"] == "none") if known else {}


def _norm(value: Any, known: Fields) -> Fields:
    return {"final_norm": "post_pool" if value else "none", "final_norm_affine": not value}


ARGUMENTS = {
    "img_size": size("image_size"),
    "patch_size": size("patch_size"),
    "in_chans": same("in_channels"),
    "num_classes": same("num_classes"),
    "global_pool": word("pool", {"soft": "soft", "avg": "mean"}),
    "encoder_pool": only(""),
    "embed_dim": same("hidden_size", "attention_head_dim"),
    "depth": same("depth"),
    "num_heads": same("num_heads", "attention_head_dim", "num_kv_heads"),
    "head_dim": shown(lambda cfg: cfg.head_dim, "attention_head_dim"),
    "num_kv_heads": shown(lambda cfg: cfg.kv_heads[0], "num_kv_heads"),
    "intermediate_size": same("mlp_dim"),
    "norm_eps": same("norm_eps"),
    "rope_theta": Argument(
        lambda cfg: cfg.rope.theta if cfg.rope else NEEDLESS,
        lambda value, known: {"rope": known["rope"].replace(theta=float(value))},
    ),
    "position_embedding_size": shown(lambda cfg: cfg.table_grid[0], "pos_embed_grid"),
    "pooling_kernel_size": Argument(
        lambda cfg: cfg.pool_window or NEEDLESS,
        lambda value, known: {"pool_window": value} if known["pool"] == "soft" else {},
    ),
    "standardize": shown(lambda cfg: cfg.pool_standardise, "pool_standardise"),
    "use_clipped_linears": shown(lambda cfg: cfg.linear_bounds, "linear_bounds"),
    "final_norm": Argument(
        lambda cfg: NEEDLESS if cfg.pool == "soft" else cfg.final_norm == "post_pool", _norm
    ),
    "drop_rate": training("dropout_head"),
    "proj_drop_rate": training("dropout_attention_out"),
    "attn_drop_rate": training("dropout_attention"),
    "drop_path_rate": training("stochastic_depth"),
    "weight_init": no_effect(),
}
"""Arguments of ``Gemma4VitEncoder`` and ``Gemma4VitClassifier``."""
