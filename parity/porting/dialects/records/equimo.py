"""Equimo's VisionTransformer, of Equinox: the leaves of its tree, and ``metadata.json`` beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect
from parity.porting.dialects.records.dino import PACKED, SPLIT, dino_rope, periods
from parity.porting.dialects.records.hf.clip import square
from parity.porting.dialects.records.hf.keys import Key, among
from parity.porting.dialects.table import layer, only_when, row
from parity.porting.formats.equinox import DEFAULTS, METADATA, VERSION, WEIGHTS
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, ViTConfig
from vit_config.rope import Rope

CODE = "equimo/models/vit.py"
SAME = ("attn.qkv", "attn.proj", "attn.q_norm", "attn.k_norm")
SCALES = ("blocks.{i}.ls1.gamma", "blocks.{i}.ls2.gamma")
PLAIN = ("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc2")
TABLE = (
    *row("patch_embed.proj.weight", "patch_embed.proj.weight"),
    *row("patch_embed.proj.bias", "patch_embed.proj.bias", "D 1 1 -> D"),
    *row("pos_embed", "global_pos_embed.weight", "n D -> 1 n D"),
    *row("cls_token", "cls_token", "n D -> 1 n D"),
    *row("reg_token", "reg_tokens", "n D -> 1 n D"),
    *layer("blocks.{i}.norm1", "blocks.{i}.prenorm"),
    *layer("blocks.{i}.norm2", "blocks.{i}.norm"),
    *(each for name in SAME for each in layer(f"blocks.{{i}}.{name}", f"blocks.{{i}}.{name}")),
    *(each for name in SCALES for each in row(name, name)),
    *only_when("mlp", "mlp", tuple(each for name in PLAIN for each in layer(name, name))),
    *PACKED,
    *SPLIT,
    *layer("norm", "norm"),
    *layer("head", "head"),
)
FREQUENCIES = "local_pos_embed.patch_rope.freqs"

ACTS = {"gelu": "gelu_tanh", "exactgelu": "gelu", "silu": "silu", "relu": "relu"}
POOLS = {"avg": "mean", "token": "class"}
MLPS = {"mlp": "mlp", "swiglu": "swiglu", "swiglufused": "swiglu_packed"}
ONLY = {"block": "attentionblock", "attn_layer": "attention", "norm_layer": "layernorm"}
TURNED = {"strategy": "period", "normalize_coords": "separate", "min_period": None, "max_period": None}
Entry = partial(Key, file=METADATA)


def _one(name: str, given: Any) -> Any:
    """Return the one value of a list with a value for each group of blocks."""
    first, *others = given if isinstance(given, list) else [given]
    if any(each != first for each in others):
        raise ConfigError(
            f"{METADATA}: {name} = {given}: its groups of blocks differ, a schema's do not"
        )
    return first


def _named(names: Mapping[str, str]) -> dict[str, Any]:
    """Return how an entry is read and written whose values have other names."""
    back = {ours: name for name, ours in names.items()}
    return {"read": lambda name: among(names)(str(name).lower()), "write": back.__getitem__}


ENTRIES = (
    Entry("img_size", "image_size", None, lambda side: (int(side),) * 2, lambda size: size[0]),
    Entry("patch_size", "patch_size", None, lambda side: (int(side),) * 2, lambda size: size[0]),
    Entry("in_channels", "in_channels", None),
    Entry("dim", "hidden_size", None),
    Entry("depths", "depth", None, sum, lambda depth: [depth]),
    Entry("num_heads", "num_heads", None),
    Entry("num_classes", "num_classes", 1000, lambda count: count or 0),
    Entry("class_token", "class_token", True),
    Entry("reg_tokens", "register_tokens", 4),
    Entry("dynamic_img_size", "dynamic_image_size", False),
    Entry("qkv_bias", "qkv_bias", True),
    Entry("proj_bias", "attention_out_bias", True),
    Entry("ffn_bias", "mlp_bias", True),
    Entry("qk_norm", "qk_norm", False),
    Entry("init_values", "layer_scale", None, lambda gain: gain or None),
    Entry("eps", "norm_eps", 1e-5, float),
    Entry("act_layer", "act", "gelu", **_named(ACTS)),
    Entry("ffn_layer", "mlp", "mlp", **_named(MLPS)),
    Entry("global_pool", "pool", "avg", **_named(POOLS)),
    Entry("pos_drop_rate", "dropout_embed", 0.0),
    Entry("drop_path_rate", "stochastic_depth", 0.0),
    Entry("attn_drop", "dropout_attention", 0.0),
    Entry("proj_drop", ("dropout_attention_out", "dropout_mlp_inner", "dropout_mlp_outer"), 0.0),
)


class EquimoSettings:
    """The arguments of the VisionTransformer in ``metadata.json``."""

    file = METADATA

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the file is of a VisionTransformer."""
        return {"dim", "depths", "num_heads"} <= {*sidecars[METADATA]["model_config"]}

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the file states. ConfigError: no schema has its values."""
        config, fields = {**DEFAULTS, **sidecars[METADATA]["model_config"]}, dict[str, Any]()
        for name, only in ONLY.items():
            if str(value := _one(name, config.get(name, only))).lower() != only:
                raise ConfigError(f"{METADATA}: {name} = {value!r}, only {only} is read")
        config["num_heads"] = _one("num_heads", config["num_heads"])
        for entry in ENTRIES:
            fields |= entry.into_fields(config)
        if fields["mlp"] != "mlp":
            fields["act"] = "silu"
        rows = config.get("global_pos_embed_cls", True), config.get("global_pos_embed_reg", False)
        fields["pos_embed"] = "learned" if config["use_global_pos_embed"] else "none"
        fields["pos_embed_prefix"] = _prefix(fields, *rows)
        fields["rope"] = _rope(config) if config["use_local_pos_embed"] else None
        return fields

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return nothing: how pixels are prepared is in no file that is read."""
        return Metadata()

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return ``metadata.json``."""
        config: dict[str, Any] = {}
        for entry in ENTRIES:
            config |= entry.into_entry(cfg)
        config["mlp_ratio"] = _ratio(cfg)
        config["use_global_pos_embed"] = cfg.pos_embed == "learned"
        config["global_pos_embed_cls"] = bool(cfg.num_prefix_rows)
        config["global_pos_embed_reg"] = cfg.num_prefix_rows > int(cfg.class_token)
        config["use_local_pos_embed"] = cfg.rope is not None
        if cfg.rope is not None:
            config["local_pos_embed_config_patch"] = {"strategy": "period", "base": cfg.rope.theta}
        beside = {"torch_hub_cfg": {}, "timm": [], "equimo_version": VERSION}
        return {METADATA: {"model_config": config, **beside}}


def _prefix(fields: Mapping[str, Any], class_row: bool, register_rows: bool) -> str:
    """Return the tokens before the patches that have a row in the position table."""
    registers = fields["register_tokens"]
    if fields["pos_embed"] == "none" or not (registers or fields["class_token"]):
        return "auto"
    if not class_row:
        return "none"
    return "auto" if register_rows or not registers else "class"


def _rope(config: Mapping[str, Any]) -> Rope:
    rotary = config.get("local_pos_embed_config_patch", {})
    for name, only in TURNED.items():
        if (value := rotary.get(name, only)) != only:
            raise ConfigError(f"{METADATA}: {name} = {value!r} is not read, only {only}")
    if config["local_pos_embed_reg"] and config["reg_tokens"]:
        raise ConfigError(
            f"{METADATA}: local_pos_embed_reg turns the registers too, which no schema has"
        )
    return dino_rope(rotary.get("base", 100.0))


def _ratio(cfg: ViTConfig) -> float:
    """Return the ratio that `int` makes the width of the MLP of; a gated one has two thirds of it."""
    width = cfg.mlp_dim if cfg.mlp == "mlp" else cfg.mlp_dim * 3 // 2
    ratio = width / cfg.hidden_size
    return ratio if int(cfg.hidden_size * ratio) == width else math.nextafter(ratio, math.inf)


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from square(cfg)
    if cfg.pool == "class" and not cfg.class_token:
        yield "it has no class token to pool"
    if cfg.mlp != "mlp" and cfg.mlp_dim % 8:
        yield f"its gated MLP has a multiple of 8 as its width, not mlp_dim = {cfg.mlp_dim}"


DIALECTS = (
    Dialect(
        name="equimo-vit",
        title="Equimo's VisionTransformer",
        family="equimo",
        tables=(TABLE,),
        marks=("patch_embed.proj.weight:4", "blocks.0.prenorm.weight", "blocks.0.attn.qkv.weight"),
        can={
            **dict.fromkeys(("class_token", "register_tokens", "norm_eps", "layer_scale"), ANY),
            **dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias", "qk_norm"), ANY),
            "act": lambda cfg: tuple(ACTS.values()) if cfg.mlp == "mlp" else ("silu",),
            "mlp": tuple(MLPS.values()),
            "pool": tuple(POOLS.values()),
            "pos_embed": ("learned", "none"),
            "pos_embed_prefix": ("auto", "class", "none"),
            "rope": lambda cfg: (None, dino_rope(cfg.rope.theta if cfg.rope else 100.0)),
        },
        limits=_limits,
        settings=EquimoSettings(),
        buffers={FREQUENCIES: periods},
        ignored=("mask_token", "local_cls_norm.*"),
        container="equinox",
        weights_name=WEIGHTS,
    ),
)
