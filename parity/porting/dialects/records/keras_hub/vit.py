"""KerasHub's ViT, of a backbone or a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Fixed, by_code
from parity.porting.dialects.records.hf.keys import CONFIG, Key, among
from parity.porting.dialects.records.keras_hub.parts import (
    SIZES,
    KerasSettings,
    config_of,
    keras_dialect,
    keras_object,
    keras_table,
)
from parity.porting.dialects.table import layer, row, split_attention
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, ViTConfig

CODE = "keras_hub/src/models/vit/vit_layers.py"
BODY, EMBEDDING, ENCODER = (
    "layers/vi_t_backbone/", "layers/vi_t_patching_and_embedding", "layers/vi_t_encoder",
)  # fmt: skip
BLOCK = f"{ENCODER}/encoder_layers/vi_t_encoder_block_{{i}}"
TRUNK = (
    *layer("patch_embed.proj", f"{EMBEDDING}/patch_embedding"),
    *row("cls_token", f"{EMBEDDING}/vars/0"),
    *row("pos_embed", f"{EMBEDDING}/position_embedding/vars/0", "n D -> 1 n D"),
    *layer("blocks.{i}.norm1", f"{BLOCK}/layer_norm_1"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}/mha/{{}}_dense", ("query", "key", "value")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}/mha/output_dense"),
    *layer("blocks.{i}.norm2", f"{BLOCK}/layer_norm_2"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}/mlp/dense_1"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}/mlp/dense_2"),
    *layer("norm", f"{ENCODER}/layer_norm"),
)
HIDDEN = keras_table((*TRUNK, *layer("pre_logits", "layers/dense"), *layer("head", "layers/dense_1")))
PLAIN = keras_table((*TRUNK, *layer("head", "layers/dense")))

POOLINGS = {"token": "class", "gap": "mean"}
ACTIVATIONS = {None: "none", "linear": "none", "softmax": "softmax"}
HEAD = "ViTImageClassifier"
BACKBONE = (
    *SIZES,
    Key("mlp_dim", "mlp_dim", None),
    Key("layer_norm_epsilon", "norm_eps", 1e-6, float),
    Key("use_mha_bias", ("qkv_bias", "attention_out_bias"), True),
    Key("use_mlp_bias", "mlp_bias", True),
    Key("use_class_token", "class_token", True),
    Key("use_patch_bias", "patch_bias", True),
    Key("patch_size", "patch_size", None, tuple, list),
    Key("attention_dropout", "dropout_attention", 0.0),
    Key(
        "dropout_rate",
        ("dropout_embed", "dropout_attention_out", "dropout_mlp_inner", "dropout_mlp_outer"),
        0.0,
    ),
)
CLASSIFIER = (
    Key("num_classes", "num_classes", None),
    Key("pooling", "pool", "token", among(POOLINGS), {"class": "token", "mean": "gap"}.__getitem__),
    Key("intermediate_dim", "head_hidden", None),
    Key("dropout", "dropout_head", 0.0),
)


class ViTSettings(KerasSettings):
    """The config files of the backbone, and of the classifier around one."""

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the file states. ConfigError: no schema has its values."""
        fields, config = super().fields(sidecars), config_of(sidecars)
        if config["class_name"] != HEAD:
            return fields
        for key in CLASSIFIER:
            fields |= key.into_fields(config["config"])
        activation = config["config"].get("activation")
        if not isinstance(activation, str | None) or activation not in ACTIVATIONS:
            raise ConfigError(f"activation = {activation!r} of its classifier; expected none or softmax")
        return {**fields, "head_activation": ACTIVATIONS[activation]}

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return ``config.json``."""
        files = super().files(cfg, metadata)
        if not cfg.num_classes:
            return files
        task: dict[str, Any] = {"backbone": files[CONFIG], "preprocessor": None}
        for key in CLASSIFIER:
            task |= key.into_entry(cfg)
        task["activation"] = None if cfg.head_activation == "none" else cfg.head_activation
        return {CONFIG: keras_object("vit.vit_image_classifier", HEAD, task)}


def _pools(cfg: ViTConfig) -> tuple[str, ...]:
    return ("class", "mean") if cfg.num_classes else ("class" if cfg.class_token else "mean",)


def _sees_prefix(cfg: ViTConfig) -> bool:
    return bool(cfg.num_classes) and cfg.class_token and cfg.pool == "mean"


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    tokens, pool = fields.get("class_token"), fields.get("pool")
    if fields.get("num_classes") == 0:
        own = "class" if tokens else "mean"
        return by_code("ViTBackbone: tokens alone", pool=own, pool_prefix=False)
    if pool is None:
        return {}
    seen = pool == "mean" and bool(tokens)
    return by_code("ViTImageClassifier: ops.mean over all tokens", pool_prefix=seen)


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.pool == "class" and not cfg.class_token:
        yield "it has no class token to pool"
    if cfg.head_hidden and not cfg.num_classes:
        yield "only its classifier has a hidden layer"


DIALECTS = (
    keras_dialect(
        "vit",
        "ViT",
        tables=(PLAIN, HIDDEN),
        marks=(PLAIN[0].theirs[0], f"{BLOCK}/mha/query_dense/vars/0".replace("_{i}", "")),
        can={
            "norm_eps": ANY, "class_token": ANY, "patch_bias": ANY, "qkv_bias": ANY,
            "attention_out_bias": lambda cfg: (cfg.qkv_bias,), "mlp_bias": ANY,
            "pool": _pools, "pool_prefix": lambda cfg: (_sees_prefix(cfg),), "head_hidden": ANY,
            "head_activation": ("none", "softmax"),
        },
        limits=_limits,
        fixed=by_code(f"{CODE}: activation = gelu, which Keras computes exactly", act="gelu"),
        follows=_follows,
        settings=ViTSettings("vit.vit_backbone", "ViTBackbone", BACKBONE, {HEAD: "backbone"}),
        body=BODY,
        beside=("layers/dense/", "layers/dense_1/"),
    ),
)  # fmt: skip
