"""transformers' image tower of Janus: SigLIP's without its pooling head, with some other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import Dialect, by_code
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import Key, sizes
from parity.porting.dialects.records.hf.siglip import CAN, ENCODER, IDS, MARKS, PATCHES, no_head
from parity.porting.dialects.table import respell_names
from vit_config import ViTConfig

PROJECTION = "encoder.layers.0.self_attn.projection_layer.weight"
KEYS = (
    *sizes(norm_eps=1e-6, hidden_size=1024, num_heads=16),
    Key("attention_bias", "qkv_bias", True),
    Key("attention_dropout", "dropout_attention", 0.0),
    Key("projection_dropout", "dropout_attention_out", 0.0),
    Key("hidden_dropout_rate", ("dropout_mlp_inner", "dropout_mlp_outer"), 0.0),
)


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"mlp_dim": int(entries["hidden_size"] * entries.get("mlp_ratio", 4.0))}


def _ratio(cfg: ViTConfig) -> dict[str, Any]:
    ratio = cfg.mlp_dim / cfg.hidden_size
    rounded_down = int(cfg.hidden_size * ratio) < cfg.mlp_dim  # the product was rounded down
    return {"mlp_ratio": (cfg.mlp_dim + 0.5) / cfg.hidden_size if rounded_down else ratio}


DIALECTS = (
    Dialect(
        name="hf-janus-vision",
        title="transformers' Janus",
        family="hf",
        tables=(respell_names(ENCODER, {"self_attn.out_proj": "self_attn.projection_layer"}),),
        marks=(f"{PATCHES}:4", *MARKS, PROJECTION),
        can={**CAN, "qkv_bias": (True, False), "pool": ("mean",)},
        limits=no_head,
        fixed=by_code("JanusVisionEmbeddings", pos_embed_resize="bicubic"),
        square="JanusVisionEmbeddings: num_patches = (image_size // patch_size) ** 2",
        note=(
            "its library pools the first patch and norms it twice; pool = mean is the schema's, and"
            " changes no token"
        ),
        settings=HfSettings(
            model_types={"janus_vision_model": "", "janus": ""},
            keys=KEYS,
            architecture=lambda cfg: "JanusVisionModel",
            only={"use_qk_norm": (False,)},
            derive=_derive,
            entries=_ratio,
            refuse=oblong,
            processor="JanusImageProcessor",
        ),
        ignored=IDS,
    ),
)
