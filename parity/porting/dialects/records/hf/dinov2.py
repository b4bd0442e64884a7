"""transformers' DINOv2, with registers and without.

Its classifier sees the class token and the mean of the patches; the model without one returns the class
token. Its config file does not state the width of the MLP but a ratio.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.hf.config import NUMBERS, HfSettings, oblong
from parity.porting.dialects.records.hf.keys import ACTS, DROPOUT, Key, head_dim, head_dim_entry, sizes
from parity.porting.dialects.records.hf.vit import BLOCK, EMBEDDINGS, MEMORY, QKV_BIAS, SQUARE, one_of
from parity.porting.dialects.table import layer, only_when, respell_names, row, split_attention
from vit_config import ViTConfig

REGISTERS = "embeddings.register_tokens"
MLP = (
    *only_when("mlp", "mlp", layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.fc1")),
    *only_when("mlp", "mlp", layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.fc2")),
)
GATED = (
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.weights_in"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.weights_out"),
)
GATED_IN_MEMORY = (
    *layer("blocks.{i}.mlp.fc1", (f"{BLOCK}.mlp.gate_proj", f"{BLOCK}.mlp.up_proj")),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.down_proj"),
)
REST = (
    *EMBEDDINGS,
    *row("reg_token", REGISTERS),
    *layer("blocks.{i}.norm1", f"{BLOCK}.norm1"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attention.attention.{{}}", ("query", "key", "value")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attention.output.dense"),
    *row("blocks.{i}.ls1.gamma", f"{BLOCK}.layer_scale1.lambda1"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.norm2"),
    *row("blocks.{i}.ls2.gamma", f"{BLOCK}.layer_scale2.lambda1"),
    *layer("norm", "layernorm"),
    *layer("head", "classifier"),
)
KEPT = {**MEMORY, "encoder.layer.": "encoder.layer."}
TABLES = ((*REST, *MLP, *GATED), (*respell_names(REST, KEPT), *MLP, *GATED_IN_MEMORY))


def gated_width(hidden_size: int, ratio: float) -> int:
    """Compute the width of a gated MLP: two thirds of a plain one's, rounded up to a multiple of 8."""
    return (int(int(hidden_size * ratio) * 2 / 3) + 7) // 8 * 8


def _plain_width(hidden_size: int, ratio: float) -> int:
    return int(hidden_size * ratio)


def _ratio(cfg: ViTConfig, fractions: bool) -> float | None:
    """Return a ratio for which the library builds an MLP of the schema's width, whole if one is; None if
    there is none.

    Args:
        fractions: the library's config takes ratios that are not whole, too.
    """
    hidden, width = cfg.hidden_size, _plain_width if cfg.mlp == "mlp" else gated_width
    plain = cfg.mlp_dim if cfg.mlp == "mlp" else cfg.mlp_dim * 3 // 2
    likely = (*range(1, 2 * cfg.mlp_dim // hidden + 2), plain / hidden, (plain + 0.5) / hidden)
    ratios = (ratio for ratio in likely if fractions or isinstance(ratio, int))
    return next((ratio for ratio in ratios if width(hidden, ratio) == cfg.mlp_dim), None)


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    width, ratio = entries["hidden_size"], entries.get("mlp_ratio", 4)
    for name, value in (("hidden_size", width), ("mlp_ratio", ratio)):
        if not isinstance(value, int | float):
            raise ValueError(f"{name} = {value!r:.80}, which is no number")
    gated = {"mlp": "swiglu_packed", "mlp_dim": gated_width(width, ratio), "act": "silu"}
    plain = {"mlp": "mlp", "mlp_dim": _plain_width(width, ratio)}
    return {**head_dim(entries), **(gated if entries.get("use_swiglu_ffn") else plain)}


def _entries(cfg: ViTConfig, fractions: bool) -> dict[str, Any]:
    gated = cfg.mlp == "swiglu_packed"
    return {**head_dim_entry(cfg), "mlp_ratio": _ratio(cfg, fractions), "use_swiglu_ffn": gated}


def limits(cfg: ViTConfig, *, fractions: bool = False) -> Iterator[str]:
    """Yield what the library's MLP and its square images cannot express of a schema, a sentence each."""
    yield from oblong({"image_size": cfg.image_size, "patch_size": cfg.patch_size})
    if cfg.mlp != "mlp" and cfg.act != "silu":
        yield f"its gate is silu, not {cfg.act}"
    if _ratio(cfg, fractions) is None:
        yield f"no mlp_ratio makes mlp_dim = {cfg.mlp_dim} of hidden_size = {cfg.hidden_size}"


def settings(
    model_type: str,
    name: str,
    patch_size: int,
    *keys: Key,
    image_size: int = 224,
    fractions: bool = False,
) -> HfSettings:
    """Build the settings of a model whose class names begin with `name`, given its defaults.

    Args:
        fractions: its `mlp_ratio` may be one that is not whole.
    """
    scale = Key("layerscale_value", "layer_scale", 1.0)
    usual = sizes(patch_size=patch_size, image_size=image_size, norm_eps=1e-6)
    return HfSettings(
        model_types={model_type: ""},
        keys=(*usual, *DROPOUT, *QKV_BIAS, scale, *keys),
        architecture=one_of(name),
        derive=_derive,
        entries=partial(_entries, fractions=fractions),
        refuse=oblong,
        processor="BitImageProcessor",
    )


def _dialect(name: str, title: str, *, marks: tuple[str, ...], can: Any, **options) -> Dialect:
    shared = {
        "qkv_bias": ANY, "norm_eps": ANY, "act": tuple(ACTS.values()), "attention_head_dim": ANY,
        "layer_scale": NUMBERS, "layer_scale_on": ("both",),
        "mlp": ("mlp", "swiglu_packed"),
        "pool": lambda cfg: ("class_mean",) if cfg.num_classes else ("class",),
    }  # fmt: skip
    return Dialect(
        name=name,
        title=title,
        family="hf",
        tables=TABLES,
        marks=(
            "embeddings.patch_embeddings.projection.weight",
            "embeddings.cls_token",
            "encoder.layer.0.norm1.weight",
            "encoder.layer.0.layer_scale1.lambda1",
            *marks,
        ),
        can={**shared, **can},
        limits=limits,
        # the learned token for masked patches; an encoder masks none
        buffers={"embeddings.mask_token": lambda cfg: np.zeros((1, cfg.hidden_size))},
        ignored=("embeddings.mask_token",),
        square=SQUARE,
        beside=("classifier.",),
        **options,
    )


def _fixed(resize: str) -> dict[str, Fixed]:
    return {
        **by_code("Dinov2Model: pooled_output = sequence_output[:, 0, :]", pool="class"),
        **by_code(
            "Dinov2Embeddings: interpolate_pos_encoding",
            dynamic_image_size=True,
            pos_embed_resize=resize,
        ),
    }


DIALECTS = (
    _dialect(
        "hf-dinov2",
        "transformers' DINOv2",
        marks=(f"!{REGISTERS}",),
        can={},
        fixed=_fixed("bicubic"),
        settings=settings("dinov2", "Dinov2", 14),
        body="dinov2.",
    ),
    _dialect(
        "hf-dinov2-registers",
        "transformers' DINOv2 with registers",
        marks=(REGISTERS,),
        # only the class token has a row, whatever the number of registers
        can={
            "register_tokens": ANY,
            "pos_embed_prefix": lambda cfg: ("class",) if cfg.register_tokens else ("auto",),
        },
        fixed=_fixed("bicubic_antialias"),
        settings=settings(
            "dinov2_with_registers",
            "Dinov2WithRegisters",
            16,
            Key("num_register_tokens", "register_tokens", 4),
        ),
        body="dinov2_with_registers.",
    ),
)
