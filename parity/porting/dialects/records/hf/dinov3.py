"""transformers' DINOv3: rotary positions over patch centres, keys without a bias, no classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.dino import dino_rope
from parity.porting.dialects.records.hf.config import NUMBERS, HfSettings, no_classifier
from parity.porting.dialects.records.hf.keys import ACTS, Key, sizes
from parity.porting.dialects.table import layer, respell_names, row, split_attention
from vit_config import ViTConfig
from vit_config.rope import Rope

REGISTERS, MASK = "embeddings.register_tokens", "embeddings.mask_token"
BLOCK = "layer.{i}"
ENCODER = (
    *row("cls_token", "embeddings.cls_token"),
    *row("reg_token", REGISTERS),
    *layer("patch_embed.proj", "embeddings.patch_embeddings"),
    *layer("blocks.{i}.norm1", f"{BLOCK}.norm1"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attention.{{}}", ("q_proj", "k_proj", "v_proj")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attention.o_proj"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.layer_scale1.lambda1"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.norm2"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.down_proj"),
    *row("blocks.{i}.ls2.gamma", f"{BLOCK}.layer_scale2.lambda1"),
    *layer("norm", "norm"),
)
PLAIN = (*ENCODER, *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.up_proj"))
GATED = (
    *ENCODER,
    *layer("blocks.{i}.mlp.fc1_g", f"{BLOCK}.mlp.gate_proj"),
    *layer("blocks.{i}.mlp.fc1_x", f"{BLOCK}.mlp.up_proj"),
)
IN_MEMORY = {"layer.{i}": "model.layer.{i}"}
BIASES = ("query_bias", "key_bias", "value_bias")


class Ropes:
    """The set of rotary positions that the library computes, for `Dialect.can`."""

    def __contains__(self, rope: object) -> bool:
        return isinstance(rope, Rope) and rope == dino_rope(rope.theta)

    def __iter__(self) -> Iterator[str]:
        return iter(("centered ones, rows first, whose pairs are halves, without an offset",))


ROPE = Key("rope_theta", "rope", 100.0, dino_rope, lambda rope: rope.theta)


def derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Read which projections have biases, whether the MLP is gated, and that positions are rotary alone.

    Raises:
        ValueError: no schema has these biases.
    """
    q, k, v = (entries.get(name, name != "key_bias") for name in BIASES)
    if q != v or (k and not q):
        biases = ", ".join(f"{name} = {value}" for name, value in zip(BIASES, (q, k, v), strict=True))
        raise ValueError(f"{biases}: a schema has biases for all three, for queries and values, or none")
    return {
        "qkv_bias": q,
        "k_bias": k or not q,
        "mlp": "swiglu" if entries.get("use_gated_mlp") else "mlp",
        "pos_embed": "none",
    }


def entries(cfg: ViTConfig) -> dict[str, Any]:
    """Return the entries that `derive` reads."""
    biases = dict(zip(BIASES, (cfg.qkv_bias, cfg.qkv_bias and cfg.k_bias, cfg.qkv_bias), strict=True))
    return {**biases, "use_gated_mlp": cfg.mlp == "swiglu"}


def _no_registers(cfg: ViTConfig) -> np.ndarray | None:
    return None if cfg.register_tokens else np.zeros((1, 0, cfg.hidden_size))


DIALECTS = (
    Dialect(
        name="hf-dinov3",
        title="transformers' DINOv3",
        family="hf",
        tables=(PLAIN, GATED, respell_names(PLAIN, IN_MEMORY), respell_names(GATED, IN_MEMORY)),
        marks=("embeddings.patch_embeddings.weight", "embeddings.cls_token", REGISTERS, "norm.weight"),
        can={
            "norm_eps": ANY, "act": tuple(ACTS.values()), "qkv_bias": ANY, "k_bias": ANY,
            "attention_out_bias": ANY, "mlp_bias": ANY, "mlp": ("mlp", "swiglu"),
            "layer_scale": NUMBERS, "layer_scale_on": ("both",), "register_tokens": ANY,
            "pos_embed": ("none",), "rope": Ropes(),
        },
        limits=no_classifier,
        fixed=by_code(
            "DINOv3ViTModel: sequence_output[:, 0, :]; positions of whatever image comes",
            pool="class", pos_embed="none", dynamic_image_size=True,
        ),
        settings=HfSettings(
            model_types={"dinov3_vit": ""},
            keys=(
                *sizes(norm_eps=1e-5, hidden_size=384, num_heads=6),
                Key("intermediate_size", "mlp_dim", 1536),
                Key("attention_dropout", "dropout_attention", 0.0),
                Key("num_register_tokens", "register_tokens", 0),
                Key("layerscale_value", "layer_scale", 1.0),
                Key("proj_bias", "attention_out_bias", True),
                Key("mlp_bias", "mlp_bias", True),
                ROPE,
            ),
            architecture=lambda cfg: "DINOv3ViTModel",
            derive=derive,
            entries=entries,
            processor="DINOv3ViTImageProcessor",
        ),
        buffers={MASK: lambda cfg: np.zeros((1, 1, cfg.hidden_size)), REGISTERS: _no_registers},
        ignored=(MASK,),
    ),
)  # fmt: skip
