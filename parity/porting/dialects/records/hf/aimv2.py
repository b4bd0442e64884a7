"""transformers' AIMv2: RMSNorm throughout, also behind the patch projection, and gated perceptrons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.clip import KEYS, TEXT
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import Key, sizes
from parity.porting.dialects.records.hf.siglip import TOKENS_ALONE, no_head
from parity.porting.dialects.table import layer, row, split_attention
from vit_config import ViTConfig

BLOCK = "encoder.layers.{i}"
TABLE = (
    *layer("patch_embed.proj", "embeddings.patch_embed"),
    *row("patch_embed.norm.weight", "embeddings.rms_norm.weight"),
    *row("pos_embed", "embeddings.position_embedding.weight", "n D -> 1 n D"),
    *row("blocks.{i}.norm1.weight", f"{BLOCK}.rms_norm1.weight"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attention.{{}}", ("q_proj", "k_proj", "v_proj")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attention.out_proj"),
    *row("blocks.{i}.norm2.weight", f"{BLOCK}.rms_norm2.weight"),
    *layer("blocks.{i}.mlp.fc1_g", f"{BLOCK}.ffn.gate_proj"),
    *layer("blocks.{i}.mlp.fc1_x", f"{BLOCK}.ffn.up_proj"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.ffn.down_proj"),
    *row("norm.weight", "rms_norm.weight"),
)


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"pos_embed": "sincos2d" if entries.get("is_native") else "learned"}


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {"is_native": cfg.pos_embed == "sincos2d", "use_head": False}


DIALECTS = (
    Dialect(
        name="hf-aimv2-tokens",
        title="transformers' AIMv2 without its pooling head",
        family="hf",
        tables=(TABLE,),
        marks=("embeddings.patch_embed.weight", "embeddings.rms_norm.weight", "rms_norm.weight"),
        can={
            "class_token": (False,), "pool": ("mean",), "norm": ("rmsnorm",), "patch_norm": (True,),
            "mlp": ("swiglu",), "act": ("silu",), "norm_eps": ANY, "mlp_bias": ANY, "qkv_bias": ANY,
            "attention_out_bias": lambda cfg: (cfg.qkv_bias,), "pos_embed": ("learned", "sincos2d"),
        },
        limits=no_head,
        fixed=by_code("Aimv2VisionModel: head is left out", pool="mean"),
        settings=HfSettings(
            model_types={"aimv2_vision_model": "", "aimv2": "vision_config"},
            keys=(
                *sizes(norm_eps=1e-5, eps_entry="rms_norm_eps", hidden_size=1024, depth=24, num_heads=8,
                       patch_size=14, act="silu"),
                Key("intermediate_size", "mlp_dim", 2816),
                Key("qkv_bias", ("qkv_bias", "attention_out_bias"), False),
                Key("mlp_bias", "mlp_bias", False),
                KEYS[1],
            ),
            architecture=lambda cfg: "Aimv2VisionModel",
            derive=_derive,
            entries=_entries,
            refuse=oblong,
            processor="CLIPImageProcessor",
        ),
        square="Aimv2VisionEmbeddings: num_patches = (image_size // patch_size) ** 2",
        ignored=("head.*", "visual_projection.*", *TEXT),
        body="vision_model.",
        note=TOKENS_ALONE,
    ),
)  # fmt: skip
