"""transformers' image towers of BLIP, BLIP-2 and InstructBLIP: joined queries, keys and values."""

from __future__ import annotations

from functools import partial

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.clip import KEYS
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import ACTS, Key, sizes
from parity.porting.dialects.records.hf.siglip import no_head
from parity.porting.dialects.records.hf.vit import RESIZED
from parity.porting.dialects.table import layer, row

BLOCK = "encoder.layers.{i}"
TABLE = (
    *row("cls_token", "embeddings.class_embedding"),
    *row("pos_embed", "embeddings.position_embedding"),
    *layer("patch_embed.proj", "embeddings.patch_embedding"),
    *layer("blocks.{i}.norm1", f"{BLOCK}.layer_norm1"),
    *layer("blocks.{i}.attn.qkv", f"{BLOCK}.self_attn.qkv"),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.self_attn.projection"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.layer_norm2"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.fc1"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.fc2"),
    *layer("norm", "post_layernorm"),
)
CAN = {"norm_eps": ANY, "act": tuple(ACTS.values()), "in_channels": (3,)}
NOTE = "its library norms the pooled class token twice; here it is normed once, and no token differs"
_dialect = partial(
    Dialect,
    family="hf",
    tables=(TABLE,),
    marks=(
        "embeddings.class_embedding:3",
        "encoder.layers.0.self_attn.qkv.weight",
        "post_layernorm.weight",
    ),
    limits=no_head,
    square="BlipVisionEmbeddings: num_patches = (image_size // patch_size) ** 2",
    fixed={**RESIZED, **by_code("BlipVisionModel: last_hidden_state[:, 0, :]", pool="class")},
    note=NOTE,
)
_settings = partial(HfSettings, refuse=oblong, processor="BlipImageProcessor")
LARGE = {
    "hidden_size": 1408, "intermediate_size": 6144, "num_hidden_layers": 39, "num_attention_heads": 16,
    "patch_size": 14,
}  # fmt: skip
KINDS = ("blip_2_vision_model", "instructblip_vision_model", "instructblipvideo_vision_model")

DIALECTS = (
    _dialect(
        name="hf-blip-vision",
        title="transformers' BLIP",
        can=CAN,
        settings=_settings(
            model_types={"blip_vision_model": "", "blip": "vision_config"},
            keys=(*sizes(norm_eps=1e-5, image_size=384), *KEYS),
            architecture=lambda cfg: "BlipVisionModel",
        ),
    ),
    _dialect(
        name="hf-blip2-vision",
        title="transformers' BLIP-2",
        can={**CAN, "qkv_bias": ANY},
        settings=_settings(
            model_types={
                **dict.fromkeys(KINDS, ""),
                "blip-2": "vision_config",
                "instructblip": "vision_config",
            },
            keys=(*sizes(norm_eps=1e-6), *KEYS, Key("qkv_bias", "qkv_bias", True)),
            architecture=lambda cfg: "Blip2VisionModel",
            defaults=dict.fromkeys(KINDS, LARGE),
        ),
    ),
)
