"""transformers' image tower of TIPSv2: DINOv2 with registers, whose positions are resized bilinearly.

Files have Google's names, which the library writes, too; a state dict taken from memory has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.dino import V2
from parity.porting.dialects.records.hf import dinov2
from parity.porting.dialects.records.hf.config import NUMBERS, HfSettings
from parity.porting.dialects.records.hf.keys import ACTS, Key
from parity.porting.dialects.table import respell_names
from vit_config import ViTConfig

PUBLISHED = respell_names(V2, {"mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"})
IN_MEMORY = dinov2.TABLES[1]


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from dinov2.limits(cfg, fractions=True)
    if cfg.num_classes:
        yield f"its tower has no classifier (num_classes = {cfg.num_classes})"
    if not cfg.register_tokens:
        yield "it has at least one register, which it trains as a second class token"


def _settings() -> HfSettings:
    registers = Key("num_register_tokens", "register_tokens", 1)
    given = {"image_size": 448, "fractions": True}  # so400m's MLP is 4304 wide, of 1152
    settings = dinov2.settings("tipsv2_vision_model", "Tipsv2Vision", 14, registers, **given)
    types = {"tipsv2_vision_model": "", "tipsv2": "vision_config"}
    return replace(settings, model_types=types, architecture=lambda cfg: "Tipsv2VisionModel")


DIALECTS = (
    Dialect(
        name="hf-tipsv2-vision",
        title="transformers' TIPSv2",
        family="hf",
        tables=(PUBLISHED, IN_MEMORY),
        marks=("patch_embed.proj.weight", "pos_embed", "register_tokens", "blocks.0.mlp.c_fc.weight"),
        config_marks=(
            "pos_embed|embeddings.position_embeddings", "register_tokens|embeddings.register_tokens",
        ),
        can={
            "qkv_bias": ANY, "norm_eps": ANY, "act": tuple(ACTS.values()), "attention_head_dim": ANY,
            "layer_scale": NUMBERS, "layer_scale_on": ("both",), "mlp": ("mlp", "swiglu_packed"),
            "pool": ("class",), "register_tokens": ANY, "pos_embed_prefix": ("class",),
        },
        limits=_limits,
        fixed={
            **by_code("Tipsv2VisionModel: pooled_output = sequence_output[:, 0, :]", pool="class"),
            **by_code(
                "Tipsv2VisionEmbeddings: interpolate_pos_encoding",
                dynamic_image_size=True, pos_embed_resize="bilinear_antialias",
            ),
        },
        square="Tipsv2VisionEmbeddings: interpolate_pos_encoding: sqrt_num_positions",
        settings=_settings(),
        # the learned token for masked patches; an encoder masks none
        buffers={"mask_token": lambda cfg: np.zeros((1, cfg.hidden_size))},
        ignored=("mask_token", "embeddings.mask_token"),
    ),
)  # fmt: skip
