"""KerasHub's DINOv3: rotary positions, with a plain MLP or a gated one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, by_code
from parity.porting.dialects.records.hf import dinov3
from parity.porting.dialects.records.hf.config import NUMBERS, no_classifier
from parity.porting.dialects.records.hf.keys import Entries, Key
from parity.porting.dialects.records.keras_hub.parts import (
    ACTS,
    SIZES,
    SQUARE_PATCH,
    KerasSettings,
    activation,
    keras_blocks,
    keras_dialect,
    keras_layer,
    keras_norm,
)
from parity.porting.dialects.table import Table, row, unread
from vit_config import ViTConfig

EMBEDDING, FIRST = "layers/dinov3_embedding", "layers/dinov3_encoder/layers/dinov3_layer"
OWN = f"{EMBEDDING}/vars/"
"""Prefix of the class token, 0; then of the token of masked patches and of the registers, as far as
there are any."""


def _block(ours: str, theirs: str) -> Table:
    q, k, v = (f"{theirs}/attention/{name}_dense/vars/" for name in ("query", "key", "value"))
    return (
        *keras_norm(f"{ours}.norm1", f"{theirs}/norm1"),
        *row(f"{ours}.attn.qkv.weight", (f"{q}0", f"{k}0", f"{v}0"), "i o -> o i"),
        *row(f"{ours}.attn.qkv.bias", (f"{q}1", f"{k}1", f"{v}1")),
        *row(f"{ours}.attn.q_bias", f"{q}1"),
        *row(f"{ours}.attn.v_bias", f"{v}1"),
        *keras_layer(f"{ours}.attn.proj", f"{theirs}/attention/output_dense"),
        *row(f"{ours}.ls1.gamma", f"{theirs}/layer_scale1/vars/0"),
        *keras_norm(f"{ours}.norm2", f"{theirs}/norm2"),
        *keras_layer(f"{ours}.mlp.fc2", f"{theirs}/mlp/down_proj"),
        *row(f"{ours}.ls2.gamma", f"{theirs}/layer_scale2/vars/0"),
    )


def _plain(ours: str, theirs: str) -> Table:
    return (*_block(ours, theirs), *keras_layer(f"{ours}.mlp.fc1", f"{theirs}/mlp/up_proj"))


def _gated(ours: str, theirs: str) -> Table:
    return (
        *_block(ours, theirs),
        *keras_layer(f"{ours}.mlp.fc1_g", f"{theirs}/mlp/gate_proj"),
        *keras_layer(f"{ours}.mlp.fc1_x", f"{theirs}/mlp/up_proj"),
    )


def _table(block: Any, tokens: Table) -> Table:
    return (
        *keras_layer(
            "patch_embed.proj", f"{EMBEDDING}/patch_embeddings/projection", "p q c o -> o c p q"
        ),
        *row("cls_token", f"{OWN}0"),
        *tokens,
        *keras_blocks(block, FIRST),
        *keras_norm("norm", "layers/layer_normalization"),
    )


MASKED = (*unread(f"{OWN}1", axes=(1, 1, 0)), *row("reg_token", f"{OWN}2"))
TOKENS = (MASKED, row("reg_token", f"{OWN}1"))


def _derive(entries: Entries) -> dict[str, Any]:
    biases = {name: entries.get(f"use_{name}", True) for name in dinov3.BIASES}
    return dinov3.derive({**biases, "use_gated_mlp": entries.get("use_gated_mlp")})


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {
        name if name.startswith("use_") else f"use_{name}": value
        for name, value in dinov3.entries(cfg).items()
    }


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from no_classifier(cfg)
    if cfg.patch_size[0] != cfg.patch_size[1]:
        yield f"its patches are square, not {cfg.patch_size}"


DIALECTS = (
    keras_dialect(
        "dinov3",
        "DINOv3",
        tables=tuple(_table(block, each) for each in TOKENS for block in (_plain, _gated)),
        marks=(f"{EMBEDDING}/patch_embeddings/projection/vars/0", f"{FIRST}/layer_scale1/vars/0"),
        can={
            "norm_eps": ANY, "act": tuple(dict.fromkeys(ACTS.values())), "qkv_bias": ANY, "k_bias": ANY,
            "attention_out_bias": ANY, "mlp_bias": ANY, "mlp": ("mlp", "swiglu"),
            "layer_scale": NUMBERS, "layer_scale_on": ("both",), "register_tokens": ANY,
            "pos_embed": ("none",), "rope": dinov3.Ropes(),
        },
        limits=_limits,
        fixed=by_code(
            "DINOV3Backbone: tokens alone; positions of whatever image comes",
            pool="class", pos_embed="none", dynamic_image_size=True,
        ),
        # one register and the token of masked patches have the same name and shape
        unshown=("register_tokens",),
        settings=KerasSettings(
            "dinov3.dinov3_backbone",
            "DINOV3Backbone",
            keys=(
                *SIZES,
                SQUARE_PATCH,
                Key("intermediate_dim", "mlp_dim", None),
                Key("layer_scale_init_value", "layer_scale", 1.0),
                Key("num_register_tokens", "register_tokens", 4),
                Key("layer_norm_eps", "norm_eps", 1e-5, float),
                Key("use_proj_bias", "attention_out_bias", True),
                Key("use_mlp_bias", "mlp_bias", True),
                Key("drop_path_rate", "stochastic_depth", 0.0),
                activation("hidden_activation", "gelu"),
                dinov3.ROPE,
            ),
            derive=_derive,
            entries=_entries,
        ),
        buffers={f"{OWN}1": lambda cfg: np.zeros((1, 1, cfg.hidden_size))},
        ignored=(f"{OWN}1",),
    ),
)  # fmt: skip
