"""transformers' Sapiens2: RMSNorm, rotary positions over patch centres, some blocks with shared keys.

Files have Meta's names, which the library writes, too; a state dict taken from memory has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code, kv_heads
from parity.porting.dialects.records.hf import dinov3
from parity.porting.dialects.records.hf.config import NUMBERS, HfSettings, no_classifier
from parity.porting.dialects.records.hf.keys import ACTS, Key, sizes
from parity.porting.dialects.table import layer, respell_names, row, split_attention
from vit_config import ViTConfig
from vit_config.schema import DEEPEST

BLOCK = "blocks.{i}"
REST = (
    *row("cls_token", "cls_token"),
    *row("reg_token", "storage_tokens"),
    *layer("patch_embed.proj", "patch_embed.projection"),
    *row("blocks.{i}.norm1.weight", f"{BLOCK}.ln1.weight"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attn.{{}}", ("wq", "wk", "wv")),
    *row("blocks.{i}.attn.q_norm.weight", f"{BLOCK}.attn.q_norm.weight"),
    *row("blocks.{i}.attn.k_norm.weight", f"{BLOCK}.attn.k_norm.weight"),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attn.proj"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.attn.gamma.weight"),
    *row("blocks.{i}.norm2.weight", f"{BLOCK}.ln2.weight"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.ffn.w3"),
)
MEMORY = {
    "cls_token": "embeddings.cls_token",
    "storage_tokens": "embeddings.register_tokens",
    "patch_embed.projection": "embeddings.patch_embeddings",
    BLOCK: "model.layer.{i}",
    ".ln": ".norm",
    ".attn.wq": ".attention.q_proj",
    ".attn.wk": ".attention.k_proj",
    ".attn.wv": ".attention.v_proj",
    ".attn.proj": ".attention.o_proj",
    ".attn.gamma.weight": ".layer_scale1.lambda1",
    ".attn.": ".attention.",
    ".ffn.w3": ".mlp.down_proj",
}
PUBLISHED = (
    *REST,
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.ffn.w12"),
    *row("norm.weight", "ln1.weight"),
)
IN_MEMORY = (
    *respell_names(REST, MEMORY),
    *layer("blocks.{i}.mlp.fc1", ("model.layer.{i}.mlp.gate_proj", "model.layer.{i}.mlp.up_proj")),
    *row("norm.weight", "norm.weight"),
)


def _stated(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the heads of each block from the width of the norm that all of a block's queries share."""
    rows = {name.removesuffix(".weight"): math.prod(shape[:1]) for name, shape in shapes.items()}
    for block, q, k in (
        ("blocks.{}.attn", "wq", "wk"),
        ("model.layer.{}.attention", "q_proj", "k_proj"),
    ):
        if width := rows.get(f"{block.format(0)}.q_norm", 0):
            keys = takewhile(rows.__contains__, (f"{block.format(i)}.{k}" for i in count()))
            heads = rows.get(f"{block.format(0)}.{q}", 0) // width
            shared = kv_heads([rows[each] // width for each in keys], heads)
            return {"num_heads": heads, "num_kv_heads": shared}
    return {}


def _heads(entries: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the heads of keys and values of each block."""
    if (listed := entries.get("num_key_value_heads_per_layer")) is not None:
        if not isinstance(listed, list) or any(type(each) is not int for each in listed):
            raise ValueError(
                f"num_key_value_heads_per_layer = {listed!r:.80}; expected a whole number for each block"
            )
        return tuple(listed)
    depth, every = entries["num_hidden_layers"], entries["num_attention_heads"]
    if depth > DEEPEST:
        raise ValueError(f"num_hidden_layers = {depth}; at most {DEEPEST} are read")
    first, last = (entries.get(f"num_{end}_full_attention_layers", 8) for end in ("first", "last"))
    shared = entries.get("num_key_value_attention_heads", 8)
    return tuple(every if i < first or i >= depth - last else shared for i in range(depth))


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    read = dinov3.derive({"key_bias": True, **entries})
    shared = kv_heads(_heads(entries), entries["num_attention_heads"])
    return {**read, "mlp": "swiglu_packed", "num_kv_heads": shared}


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    heads = {"num_key_value_heads_per_layer": list(cfg.kv_heads)}
    return {**dinov3.entries(cfg), "use_gated_mlp": True, **heads}


DIALECTS = (
    Dialect(
        name="hf-sapiens2",
        title="transformers' Sapiens2",
        family="hf",
        tables=(PUBLISHED, IN_MEMORY),
        marks=(
            "patch_embed.projection.weight|embeddings.patch_embeddings.weight",
            "storage_tokens|embeddings.register_tokens",
            "blocks.0.attn.gamma.weight|model.layer.0.layer_scale1.lambda1",
            "blocks.0.ln1.weight|model.layer.0.norm1.weight",
            "!model.layer.0.norm1.bias",
        ),
        can={
            "norm": ("rmsnorm",), "norm_eps": ANY, "act": tuple(ACTS.values()), "qkv_bias": ANY,
            "k_bias": ANY, "qk_norm": ANY, "num_kv_heads": ANY, "attention_out_bias": ANY,
            "mlp_bias": ANY, "mlp": ("swiglu_packed",), "layer_scale": NUMBERS,
            "layer_scale_on": ("attention",), "register_tokens": ANY, "pos_embed": ("none",),
            "rope": dinov3.Ropes(),
        },
        limits=no_classifier,
        stated=_stated,
        fixed=by_code(
            "Sapiens2Model: sequence_output[:, 0, :]; positions of whatever image comes",
            pool="class", pos_embed="none", dynamic_image_size=True,
        ),
        settings=HfSettings(
            model_types={"sapiens2": ""},
            keys=(
                *sizes(norm_eps=1e-6, eps_entry="rms_norm_eps", hidden_size=1024, depth=24, num_heads=16,
                       act="silu"),
                Key("intermediate_size", "mlp_dim", 4096),
                Key("attention_dropout", "dropout_attention", 0.0),
                Key("num_register_tokens", "register_tokens", 8),
                Key("layerscale_value", "layer_scale", 1.0),
                Key("proj_bias", "attention_out_bias", True),
                Key("mlp_bias", "mlp_bias", True),
                Key("use_qk_norm", "qk_norm", True),
                dinov3.ROPE,
            ),
            architecture=lambda cfg: "Sapiens2Model",
            # it writes a plain MLP under the names of a gated one
            only={"use_gated_mlp": (True,)},
            derive=_derive,
            entries=_entries,
        ),
        ignored=("mask_token", "embeddings.mask_token"),
    ),
)  # fmt: skip
