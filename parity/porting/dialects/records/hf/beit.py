"""transformers' BEiT and Data2VecVision: keys without a bias, a learned bias per relative position, mean
pooling.

The two differ only after the blocks of a model without a classifier: BEiT pools and normalises,
Data2VecVision does not, nor does a BEiT that is part of another model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import (
    ACTS,
    DROPOUT,
    MLP,
    Key,
    head_dim,
    head_dim_entry,
    sizes,
)
from parity.porting.dialects.records.hf.labels import HEAD
from parity.porting.dialects.records.hf.vit import BLOCK, CLASSIFIER, MEMORY, RESIZED, SQUARE, one_of
from parity.porting.dialects.table import layer, respell_names, row
from vit_config import ViTConfig

SHARED = "use_shared_relative_position_bias"
RELATIVE = "relative_position_bias.relative_position_bias_table"
TABLE = (
    *CLASSIFIER,
    *layer("fc_norm", "pooler.layernorm"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.lambda_1"),
    *row("blocks.{i}.ls2.gamma", f"{BLOCK}.lambda_2"),
    *row("blocks.{i}.attn.rel_pos_bias.table", f"{BLOCK}.attention.attention.{RELATIVE}"),
    *row("blocks.{i}.attn.rel_pos_bias.table", f"encoder.{RELATIVE}"),  # shared by all blocks
)
IN_MEMORY = respell_names(
    TABLE,
    {
        f"encoder.{RELATIVE}": "shared_position_bias.relative_position_bias_table",
        **MEMORY,
        f".attention.attention.{RELATIVE}": f".{RELATIVE}",
    },
)
FIRST = "encoder.layer.0"
POOLS = {True: ("mean", "post_pool"), False: ("class", "pre_pool")}
"""pool and final_norm by use_mean_pooling."""


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    pool, norm = POOLS[bool(entries.get("use_mean_pooling", True))]
    positions = entries.get("use_absolute_position_embeddings", False)
    scale = entries.get("layer_scale_init_value", 0.1)
    drop = entries.get("drop_path_rate", 0.1)
    relative, shared = bool(entries["use_relative_position_bias"]), bool(entries.get(SHARED))
    if relative and shared:
        raise ValueError(
            f"use_relative_position_bias and {SHARED}: their sum is no table of a block's own"
        )
    return {
        "rel_pos_bias": relative or shared,
        **head_dim(entries),
        "pool": pool,
        "final_norm": norm,
        "pos_embed": "learned" if positions else "none",
        "layer_scale": scale if scale > 0 else None,
        "stochastic_depth": drop if entries["num_hidden_layers"] > 1 else 0.0,
    }


def _derive_bare(entries: Mapping[str, Any]) -> dict[str, Any]:
    fields = _derive(entries)
    if not any(HEAD in name for name in entries.get("architectures") or ()):
        del fields["pool"], fields["final_norm"]  # the tensors show them
    return fields


def _derive_trunk(entries: Mapping[str, Any]) -> dict[str, Any]:
    fields = _derive(entries)
    del fields["pool"], fields["final_norm"]  # they are of layers that the trunk does not have
    return fields


def _follows_bare(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    pool = "mean" if fields["final_norm"] == "post_pool" else "class"
    return by_code("Data2VecVisionPooler: the mean is normalised, the class token is not", pool=pool)


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {
        **head_dim_entry(cfg),
        "use_mean_pooling": cfg.final_norm != "pre_pool",
        "use_absolute_position_embeddings": cfg.pos_embed == "learned",
        "layer_scale_init_value": cfg.layer_scale or 0.0,
        "drop_path_rate": cfg.stochastic_depth,
    }


def _limits(cfg: ViTConfig, pools: Collection[tuple[str, str]] = tuple(POOLS.values())) -> Iterator[str]:
    yield from oblong({"image_size": cfg.image_size, "patch_size": cfg.patch_size})
    if (cfg.pool, cfg.final_norm) not in pools:
        yield f"it does not pool by {cfg.pool} with final_norm = {cfg.final_norm}"


def _limits_bare(cfg: ViTConfig) -> Iterator[str]:
    bare = (("class", "none"), ("class", "pre_pool"))
    yield from _limits(cfg, tuple(POOLS.values()) if cfg.num_classes else bare)


def _limits_data2vec(cfg: ViTConfig) -> Iterator[str]:
    yield from _limits_bare(cfg)
    if cfg.attention_head_dim:
        yield f"its heads share the width of a token (attention_head_dim = {cfg.attention_head_dim})"


def _dialect(
    name: str,
    title: str,
    model_type: str,
    classes: str,
    body: str,
    *,
    derive: Callable[[Mapping[str, Any]], dict[str, Any]] = _derive,
    marks: tuple[str, ...] = (),
    **own: Any,
) -> Dialect:
    trunk = f"--part {body.removesuffix('.')} takes that alone"
    return Dialect(
        name=name,
        title=title,
        family="hf",
        tables=(TABLE, IN_MEMORY),
        marks=(
            "embeddings.patch_embeddings.projection.weight",
            "embeddings.cls_token",
            f"{FIRST}.attention.attention.query.bias|layers.0.attention.q_proj.bias",
            f"!{FIRST}.attention.attention.key.bias|layers.0.attention.k_proj.bias",
            f"{FIRST}.layernorm_before.weight|layers.0.layernorm_before.weight",
            *marks,
        ),
        can={
            "norm_eps": ANY, "act": tuple(ACTS.values()), "attention_head_dim": ANY, "k_bias": (False,),
            "rel_pos_bias": ANY, "pos_embed": ("none", "learned"), "layer_scale": ANY,
            "layer_scale_on": ("both",),
            "pool": ("mean", "class"), "final_norm": ("post_pool", "pre_pool", "none"),
        },
        fixed={**RESIZED, **by_code("BeitEmbeddings: no table, no positions", pos_embed="none")},
        square=SQUARE,
        settings=HfSettings(
            model_types={model_type: ""},
            keys=(
                *sizes(norm_eps=1e-12), *MLP, *DROPOUT,
                Key("use_relative_position_bias", "rel_pos_bias", False),
            ),
            only={SHARED: (False, True), "use_mask_token": (False, True)},
            architecture=one_of(classes),
            derive=derive,
            entries=_entries,
            refuse=oblong,
            processor="BeitImageProcessor",
        ),
        ignored=("embeddings.mask_token", "*relative_position_index"),
        foreign={
            "lm_head.*": f"a model of masked images, whose norm stands beside its trunk ({trunk})",
            "decode_head.*": f"a model that segments ({trunk})",
        },
        body=body,
        beside=("classifier.",),
        **own,
    )  # fmt: skip


DIALECTS = (
    _dialect(
        "hf-beit-trunk",
        "the trunk of transformers' BEiT",
        "beit",
        "Beit",
        "beit.",
        derive=_derive_trunk,
        marks=tuple(f"!{each}.weight" for each in ("classifier", "pooler.layernorm", "layernorm")),
        follows=_follows_bare,
        limits=_limits_bare,
        writes=False,  # Data2VecVision's classes are the same model, and their config states it
    ),
    _dialect("hf-beit", "transformers' BEiT", "beit", "Beit", "beit.", limits=_limits),
    _dialect(
        "hf-data2vec-vision",
        "transformers' Data2VecVision",
        "data2vec-vision",
        "Data2VecVision",
        "data2vec_vision.",
        derive=_derive_bare,
        follows=_follows_bare,
        limits=_limits_data2vec,
    ),
)
