"""transformers' image tower of Gemma 4, which takes patches of images of any size.

Its config states no image size: that of the schema is the size to which its image processor brings a
square image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isqrt
from typing import Any

from parity.porting.dialects.dialect import Dialect, Fixed, by_code
from parity.porting.dialects.records.gemma4 import (
    BY_CODE,
    ENCODER_CAN,
    TOWER,
    encoder_limits,
    shapes_say,
)
from parity.porting.dialects.records.hf.config import HfSettings
from parity.porting.dialects.records.hf.keys import Key, act_key, head_dim, sizes
from vit_config import Rope, ViTConfig

SOFT_TOKENS = 280
"""``max_soft_tokens`` of ``Gemma4ImageProcessor``: at most so many pooled tokens of an image."""
ROPE = {"rope_type": "axial", "rope_theta": 100.0}
HEADS = {"head_dim": 64, "num_key_value_heads": 12, "position_embedding_size": 10240}
"""The library's defaults of entries that several fields follow from."""
KEYS = (
    *(
        key
        for key in sizes(norm_eps=1e-6, eps_entry="rms_norm_eps", depth=16, act="gelu_pytorch_tanh")
        if key.name not in ("num_channels", "image_size", "hidden_act")
    ),
    replace(act_key("gelu_pytorch_tanh"), name="hidden_activation"),
    Key("intermediate_size", "mlp_dim", 3072),
    Key("attention_dropout", "dropout_attention", 0.0),
    Key("pooling_kernel_size", "pool_window", 3),
    Key("use_clipped_linears", "linear_bounds", False),
    Key("standardize", "pool_standardise", False),
)


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    values = {**HEADS, **entries}
    rope = {**ROPE, **(values.get("rope_parameters") or {})}
    if rope["rope_type"] != "axial":
        raise ValueError(f"rope_parameters: rope_type = {rope['rope_type']!r}, not 'axial'")
    shared, rows = values["num_key_value_heads"], values["position_embedding_size"]
    return {
        **head_dim(values),
        "num_kv_heads": None if shared == values["num_attention_heads"] else shared,
        "pos_embed_grid": (rows, rows),
        "rope": Rope(theta=float(rope["rope_theta"]), axes="wh", pairs="half_of_axis"),
    }


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {
        "head_dim": cfg.head_dim,
        "num_key_value_heads": cfg.kv_heads[0],
        "position_embedding_size": cfg.table_grid[0],
        "rope_parameters": {**ROPE, "rope_theta": cfg.rope.theta if cfg.rope else 0.0},
    }


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return the channels, and the image size: as many squares along both sides as the processor makes
    of a square image."""
    channels = by_code("Gemma4VisionPatchEmbedder: 3 * self.patch_size**2", in_channels=3)
    window, patch = fields.get("pool_window"), fields.get("patch_size")
    if not isinstance(window, int) or not isinstance(patch, tuple):
        return channels
    side = isqrt(SOFT_TOKENS) * window
    where = f"Gemma4ImageProcessor: max_soft_tokens = {SOFT_TOKENS} of a square image"
    return {**channels, **by_code(where, image_size=(side * patch[0], side * patch[1]))}


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from encoder_limits(cfg)
    if cfg.in_channels != 3:
        yield f"it takes images of 3 channels, not {cfg.in_channels}"
    if cfg.patch_size[0] != cfg.patch_size[1]:
        yield f"its patches are square, not {cfg.patch_size}"


DIALECTS = (
    Dialect(
        name="hf-gemma4-vision",
        title="transformers' Gemma 4",
        family="hf",
        tables=(TOWER,),
        marks=(
            "patch_embedder.position_embedding_table",
            "encoder.layers.0.post_feedforward_layernorm.weight",
        ),
        can={**ENCODER_CAN, "patch_embed": ("linear_hwc",)},
        limits=_limits,
        fixed=BY_CODE,
        follows=_follows,
        stated=shapes_say("", "encoder.layers.0.self_attn", "patch_embedder"),
        unshown=("pool",),
        note="its files state no image size; image_size is what its processor makes of a square image",
        settings=HfSettings(
            model_types={"gemma4_vision": ""},
            keys=KEYS,
            architecture=lambda cfg: "Gemma4VisionModel",
            only={"attention_bias": (False, None)},
            derive=_derive,
            entries=_entries,
            processor="Gemma4ImageProcessor",
        ),
    ),
)
