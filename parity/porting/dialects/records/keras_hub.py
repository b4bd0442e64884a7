"""KerasHub's ViT: ``.weights.h5``, ``.keras`` and preset folders, of a backbone or a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.hf.keys import CONFIG, Key, among
from parity.porting.dialects.table import Table, row
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, ViTConfig

CODE = "keras_hub/src/models/vit/vit_layers.py"
TASK = "task.json"
BODY, EMBEDDING, ENCODER = (
    "layers/vi_t_backbone/", "layers/vi_t_patching_and_embedding", "layers/vi_t_encoder",
)  # fmt: skip
FIRST = f"{ENCODER}/encoder_layers/vi_t_encoder_block"


def _layer(ours: str, theirs: str, kernel: str = "") -> Table:
    """Return the rows of a layer's weight and bias, which Keras numbers."""
    return (
        *row(f"{ours}.weight", f"{theirs}/vars/0", kernel),
        *row(f"{ours}.bias", f"{theirs}/vars/1"),
    )


def _block(ours: str, theirs: str) -> Table:
    apart = tuple(f"{theirs}/mha/{name}_dense/vars/" for name in ("query", "key", "value"))
    return (
        *_layer(f"{ours}.norm1", f"{theirs}/layer_norm_1"),
        *row(f"{ours}.attn.qkv.weight", tuple(f"{each}0" for each in apart), "i h d -> (h d) i"),
        *row(f"{ours}.attn.qkv.bias", tuple(f"{each}1" for each in apart), "h d -> (h d)"),
        *_layer(f"{ours}.attn.proj", f"{theirs}/mha/output_dense", "h d o -> o (h d)"),
        *_layer(f"{ours}.norm2", f"{theirs}/layer_norm_2"),
        *_layer(f"{ours}.mlp.fc1", f"{theirs}/mlp/dense_1", "i o -> o i"),
        *_layer(f"{ours}.mlp.fc2", f"{theirs}/mlp/dense_2", "i o -> o i"),
    )


TRUNK = (
    *_layer("patch_embed.proj", f"{EMBEDDING}/patch_embedding", "p q c o -> o c p q"),
    *row("cls_token", f"{EMBEDDING}/vars/0"),
    *row("pos_embed", f"{EMBEDDING}/position_embedding/vars/0", "n D -> 1 n D"),
    *_block("blocks.0", FIRST),  # only the names of later blocks have a number
    *_block("blocks.{i}", f"{FIRST}_{{i}}"),
    *_layer("norm", f"{ENCODER}/layer_norm"),
)
HIDDEN = (
    *TRUNK,
    *_layer("pre_logits", "layers/dense", "i o -> o i"),
    *_layer("head", "layers/dense_1", "i o -> o i"),
)
PLAIN = (*TRUNK, *_layer("head", "layers/dense", "i o -> o i"))

POOLINGS = {"token": "class", "gap": "mean"}
ACTIVATIONS = {None: "none", "linear": "none", "softmax": "softmax"}
BACKBONE = (
    Key("num_layers", "depth", None),
    Key("num_heads", "num_heads", None),
    Key("hidden_dim", "hidden_size", None),
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


class KerasSettings:
    """KerasHub's ``config.json`` of a backbone, or of a classifier around one (also ``task.json``)."""

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the file is of a ViT of KerasHub."""
        return _config(sidecars).get("class_name") in ("ViTBackbone", "ViTImageClassifier")

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the file states. ConfigError: no schema has its values."""
        config = _config(sidecars)
        task = config["config"] if config["class_name"] == "ViTImageClassifier" else None
        entries = task["backbone"]["config"] if task else config["config"]
        *size, channels = entries["image_shape"]
        fields: dict[str, Any] = {"image_size": tuple(size), "in_channels": channels}
        for key in BACKBONE:
            fields |= key.into_fields(entries)
        if task is None:
            return {**fields, "num_classes": 0}
        for key in CLASSIFIER:
            fields |= key.into_fields(task)
        activation = task.get("activation")
        if not isinstance(activation, str | None) or activation not in ACTIVATIONS:
            raise ConfigError(f"activation = {activation!r} of its classifier; expected none or softmax")
        return {**fields, "head_activation": ACTIVATIONS[activation]}

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return nothing: how pixels are prepared is in no file that is read."""
        return Metadata()

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return ``config.json``."""
        entries: dict[str, Any] = {"image_shape": [*cfg.image_size, cfg.in_channels]}
        for key in BACKBONE:
            entries |= key.into_entry(cfg)
        backbone = _object("vit_backbone", "ViTBackbone", entries)
        if not cfg.num_classes:
            return {CONFIG: backbone}
        task: dict[str, Any] = {"backbone": backbone, "preprocessor": None}
        for key in CLASSIFIER:
            task |= key.into_entry(cfg)
        task["activation"] = None if cfg.head_activation == "none" else cfg.head_activation
        return {CONFIG: _object("vit_image_classifier", "ViTImageClassifier", task)}


def _config(sidecars: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for name in (TASK, CONFIG) if isinstance(each := sidecars.get(name), dict)), {})


def _object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "module": f"keras_hub.src.models.vit.{module}",
        "class_name": name,
        "config": config,
        "registered_name": f"keras_hub>{name}",
    }


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
    Dialect(
        name="keras-hub-vit",
        title="KerasHub's ViT",
        family="keras-hub",
        tables=(PLAIN, HIDDEN),
        marks=(f"{EMBEDDING}/patch_embedding/vars/0", f"{FIRST}/mha/query_dense/vars/0"),
        can={
            "norm_eps": ANY, "class_token": ANY, "patch_bias": ANY, "qkv_bias": ANY,
            "attention_out_bias": lambda cfg: (cfg.qkv_bias,), "mlp_bias": ANY,
            "pool": _pools, "pool_prefix": lambda cfg: (_sees_prefix(cfg),), "head_hidden": ANY,
            "head_activation": ("none", "softmax"),
        },
        limits=_limits,
        fixed=by_code(f"{CODE}: activation = gelu, which Keras computes exactly", act="gelu"),
        follows=_follows,
        settings=KerasSettings(),
        body=BODY,
        beside=("layers/dense/", "layers/dense_1/"),
        ignored=("optimizer/*",),
        container="hdf5",
        weights_name="model.weights.h5",
    ),
)  # fmt: skip
