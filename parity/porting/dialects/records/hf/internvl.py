"""transformers' image tower of InternVL: BEiT's layer scales, learned positions, no norm at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.config import NUMBERS, HfSettings
from parity.porting.dialects.records.hf.keys import ACTS, Key, among, sizes
from parity.porting.dialects.records.hf.vit import EMBEDDINGS, RESIZED, SQUARE
from parity.porting.dialects.table import layer, row, split_attention
from vit_config import ViTConfig

BLOCK = "encoder.layer.{i}"
TABLE = (
    *EMBEDDINGS,
    *layer("blocks.{i}.norm1", f"{BLOCK}.layernorm_before"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attention.{{}}", ("q_proj", "k_proj", "v_proj")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attention.projection_layer"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.lambda_1"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.layernorm_after"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.fc1"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.fc2"),
    *row("blocks.{i}.ls2.gamma", f"{BLOCK}.lambda_2"),
    *layer("norm", "layernorm"),
)
NORMS = {"layer_norm": "layernorm", "rms_norm": "rmsnorm"}
NAMES = {ours: theirs for theirs, ours in NORMS.items()}
KEYS = (
    *sizes(norm_eps=1e-6, hidden_size=1024, depth=24, num_heads=16, patch_size=14, image_size=448),
    Key("intermediate_size", "mlp_dim", 4096),
    Key("attention_bias", "qkv_bias", False),
    Key("layer_scale_init_value", "layer_scale", 0.1),
    Key("norm_type", "norm", "layer_norm", among(NORMS), NAMES.__getitem__),
    Key("attention_dropout", "dropout_attention", 0.0),
    Key("projection_dropout", "dropout_attention_out", 0.0),
    Key("hidden_dropout_prob", ("dropout_embed", "dropout_mlp_outer"), 0.0),
)  # fmt: skip


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {"use_mean_pooling": cfg.final_norm == "none"}


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"final_norm": "none" if entries.get("use_mean_pooling", True) else "pre_pool"}


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.num_classes:
        yield f"its tower has no classifier (num_classes = {cfg.num_classes})"
    if cfg.grid[0] != cfg.grid[1]:
        yield f"its code takes the root of the number of positions, so no grid of {cfg.grid}"
    if cfg.norm == "rmsnorm" and cfg.final_norm != "none":
        yield "its last norm is a LayerNorm where the others are RMSNorm"


DIALECTS = (
    Dialect(
        name="hf-internvl-vision",
        title="transformers' InternVL",
        family="hf",
        tables=(TABLE,),
        marks=(
            "embeddings.cls_token", "embeddings.position_embeddings", "encoder.layer.0.lambda_1",
            "encoder.layer.0.attention.projection_layer.weight",
        ),
        can={
            "qkv_bias": ANY, "norm_eps": ANY, "norm": ("layernorm", "rmsnorm"),
            "act": tuple(ACTS.values()), "layer_scale": NUMBERS, "layer_scale_on": ("both",),
            "final_norm": ("none", "pre_pool"), "pool": ("class",),
        },
        limits=_limits,
        fixed={**RESIZED, **by_code("InternVLVisionModel: tokens alone", pool="class")},
        settings=HfSettings(
            model_types={"internvl_vision": ""},
            keys=KEYS,
            architecture=lambda cfg: "InternVLVisionModel",
            only={"use_qk_norm": (False,), "use_absolute_position_embeddings": (True,)},
            derive=_derive,
            entries=_entries,
        ),
        square=SQUARE,
        ignored=("embeddings.mask_token",),
        note="its library pools nothing; pool = class is the schema's, and changes no token",
    ),
)  # fmt: skip
