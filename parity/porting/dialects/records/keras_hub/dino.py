"""KerasHub's DINOv2 and DINOv3, by transformers' tables with Keras' names.

DINOv2's files hold two position tables: that which the model adds to the tokens of images of
``image_shape``, and behind it that of ``position_embedding_shape``, which the library resizes to the
first when it opens the file. The first is read, as it was trained; the second is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Fixed, by_code
from parity.porting.dialects.records.hf import dinov2, dinov3
from parity.porting.dialects.records.hf.config import NUMBERS, no_classifier, oblong
from parity.porting.dialects.records.hf.keys import Entries, Key
from parity.porting.dialects.records.keras_hub.parts import (
    SIZES,
    SQUARE_PATCH,
    KerasSettings,
    activation,
    keras_dialect,
    keras_table,
)
from parity.porting.dialects.table import Table, read_only, row, unread
from vit_config import ConfigError, ViTConfig

NAMES = {
    "encoder.layer.{i}": "layer.{i}",
    "layer.{i}.": "layers/dinov{v}_encoder/layers/dinov{v}_layer_{i}.",
    "embeddings.cls_token": "layers/dinov{v}_embedding/vars/0",
    "embeddings.patch_embeddings.projection": "embeddings.patch_embeddings",
    "embeddings.patch_embeddings": "layers/dinov{v}_embedding/patch_embeddings/projection",
    "layernorm.": "norm.", "norm.": "layers/layer_normalization.",
    "attention.output.dense": "attention.attention.output_dense", "o_proj": "output_dense",
    "attention.query": "attention.query_dense", "attention.q_proj": "attention.query_dense",
    "attention.key": "attention.key_dense", "attention.k_proj": "attention.key_dense",
    "attention.value": "attention.value_dense", "attention.v_proj": "attention.value_dense",
}  # fmt: skip
"""Keras' names for parts of transformers'."""


def _names(version: int) -> dict[str, str]:
    return {ours: theirs.replace("{v}", str(version)) for ours, theirs in NAMES.items()}


def _own(version: int, number: int) -> str:
    """Return the name of a weight of the embedding's own: the class token, 0; then, one after the other
    and as far as there are any, the token of masked patches, the registers, and in DINOv2 the two
    position tables."""
    return f"layers/dinov{version}_embedding/vars/{number}"


def _marks(version: int) -> tuple[str, ...]:
    name = f"layers/dinov{version}"
    scale = f"{name}_encoder/layers/dinov{version}_layer/layer_scale1/vars/0"
    return f"{name}_embedding/patch_embeddings/projection/vars/0", scale


def _v2(*, mask: bool, registers: bool, added: bool) -> Table:
    """Build DINOv2's table of a model with these tokens.

    Args:
        added: its position table is that which the model adds to the tokens, and the other is unread.
    """
    first = 1 + mask + registers
    tokens = row("reg_token", _own(2, first - 1), axes=3) if registers else ()
    table = row("pos_embed", _own(2, first + (not added)), axes=3)
    tables = (*read_only(table), *unread(_own(2, first + 1))) if added else table
    rest = (each for each in dinov2.REST if each.ours[0] not in ("reg_token", "pos_embed"))
    return (*keras_table((*rest, *dinov2.MLP, *dinov2.GATED), _names(2)), *tokens, *tables)


V2 = (
    *(_v2(mask=True, registers=registers, added=False) for registers in (False, True)),
    # in this order, the first of those that leave the fewest tensors over is the right one
    *(_v2(mask=m, registers=r, added=True) for r in (False, True) for m in (True, False)),
)


def _v3(table: Table) -> Table:
    rest = tuple(each for each in table if each.ours[0] != "reg_token")
    return (*keras_table(rest, _names(3), {}), *row("reg_token", _own(3, 2)))


def _derive_v2(entries: Entries) -> dict[str, Any]:
    width, smooth = entries["intermediate_dim"], entries.get("antialias_in_interpolation")
    gated = {"mlp": "swiglu_packed", "mlp_dim": dinov2.gated_width(width, 1)}
    return {
        **(gated if entries.get("use_swiglu_ffn") else {"mlp": "mlp", "mlp_dim": width}),
        "pos_embed_resize": "bicubic_antialias" if smooth else "bicubic",
    }


def _entries_v2(cfg: ViTConfig) -> dict[str, Any]:
    return {
        "intermediate_dim": cfg.mlp_dim if cfg.mlp == "mlp" else cfg.mlp_dim * 3 // 2,
        "use_swiglu_ffn": cfg.mlp != "mlp",
        "position_embedding_shape": [*cfg.image_size],
        "antialias_in_interpolation": cfg.pos_embed_resize == "bicubic_antialias",
    }


def _follows_v2(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    act = "gelu" if fields["mlp"] == "mlp" else "silu"
    return by_code("DINOV2MLP: activation = gelu; DINOV2SwiGLUFFN: ops.silu", act=act)


def _limits_v2(cfg: ViTConfig) -> Iterator[str]:
    yield from no_classifier(cfg)
    yield from oblong({"image_size": cfg.image_size, "patch_size": cfg.patch_size})
    if cfg.mlp != "mlp" and cfg.mlp_dim % 8:
        yield f"its gated MLP has a multiple of 8 as its width, not mlp_dim = {cfg.mlp_dim}"


def _derive_v3(entries: Entries) -> dict[str, Any]:
    if not entries.get("use_mask_token", True):
        raise ConfigError(
            "use_mask_token = False, and without that token its registers have another name"
        )
    biases = {name: entries.get(f"use_{name}", True) for name in dinov3.BIASES}
    return dinov3.derive({**biases, "use_gated_mlp": entries.get("use_gated_mlp")})


def _entries_v3(cfg: ViTConfig) -> dict[str, Any]:
    return {f"use_{name.removeprefix('use_')}": each for name, each in dinov3.entries(cfg).items()}


def _limits_v3(cfg: ViTConfig) -> Iterator[str]:
    yield from no_classifier(cfg)
    yield from oblong({"image_size": (1, 1), "patch_size": cfg.patch_size})


SHARED = {"layer_scale": NUMBERS, "layer_scale_on": ("both",), "register_tokens": ANY}
DROPOUT = ("dropout_embed", "dropout_attention", "dropout_attention_out")
KEYS = (*SIZES, SQUARE_PATCH, Key("layer_scale_init_value", "layer_scale", 1.0))
DIALECTS = (
    keras_dialect(
        "dinov2",
        "DINOv2",
        tables=V2,
        marks=_marks(2),
        can={
            **SHARED, "mlp": ("mlp", "swiglu_packed"),
            "act": lambda cfg: ("gelu",) if cfg.mlp == "mlp" else ("silu",),
            "pos_embed_prefix": lambda cfg: ("class",) if cfg.register_tokens else ("auto",),
        },
        limits=_limits_v2,
        fixed=by_code("DINOV2Backbone: tokens alone; epsilon = 1e-6", pool="class", norm_eps=1e-6),
        follows=_follows_v2,
        square="DINOV2Backbone: height != width",
        settings=KerasSettings(
            "dinov2.dinov2_backbone",
            "DINOV2Backbone",
            keys=(
                *KEYS,
                Key("num_register_tokens", "register_tokens", 0),
                Key("dropout_rate", DROPOUT, 0.0),
            ),
            derive=_derive_v2,
            entries=_entries_v2,
        ),
        # the token of masked patches; an encoder masks none
        buffers={_own(2, 1): lambda cfg: np.zeros((1, cfg.hidden_size))},
        ignored=(_own(2, 1),),
        note="where its two position tables differ, took that which the model adds to tokens; the"
        " library opens the file with the other one, resized",
    ),
    keras_dialect(
        "dinov3",
        "DINOv3",
        tables=(_v3(dinov3.PLAIN), _v3(dinov3.GATED)),
        # without registers, or without the token before them, a file alone does not show which it has
        marks=(*_marks(3), _own(3, 2)),
        config_marks=_marks(3),
        can={
            **SHARED, "norm_eps": ANY, "act": ("gelu", "silu", "relu"), "qkv_bias": ANY, "k_bias": ANY,
            "attention_out_bias": ANY, "mlp_bias": ANY, "mlp": ("mlp", "swiglu"),
            "pos_embed": ("none",), "rope": dinov3.Ropes(),
        },
        limits=_limits_v3,
        fixed=by_code(
            "DINOV3Backbone: tokens alone; positions of whatever image comes",
            pool="class", pos_embed="none", dynamic_image_size=True,
        ),
        settings=KerasSettings(
            "dinov3.dinov3_backbone",
            "DINOV3Backbone",
            keys=(
                *KEYS,
                Key("num_register_tokens", "register_tokens", 4),
                Key("intermediate_dim", "mlp_dim", None),
                Key("layer_norm_eps", "norm_eps", 1e-5, float),
                Key("use_proj_bias", "attention_out_bias", True),
                Key("use_mlp_bias", "mlp_bias", True),
                Key("drop_path_rate", "stochastic_depth", 0.0),
                activation("hidden_activation", "gelu"),
                dinov3.ROPE,
            ),
            derive=_derive_v3,
            entries=_entries_v3,
        ),
        buffers={_own(3, 1): lambda cfg: np.zeros((1, 1, cfg.hidden_size))},
        ignored=(_own(3, 1),),
    ),
)  # fmt: skip
