"""What KerasHub's models share: the names of Keras' layers, and the form of the config files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.records.hf.keys import CONFIG, Entries, Key, among
from parity.porting.dialects.table import Table, row
from parity.porting.formats.metadata import Metadata
from vit_config import ViTConfig

TASK = "task.json"
ACTS = {"gelu": "gelu", "silu": "silu", "swish": "silu", "relu": "relu"}
"""Our activations by Keras' names, whose GELU is exact; the first of several is written."""
SIZES = (
    Key("num_layers", "depth", None),
    Key("num_heads", "num_heads", None),
    Key("hidden_dim", "hidden_size", None),
)
SQUARE_PATCH = Key("patch_size", "patch_size", None, lambda side: (side, side), lambda size: size[0])


def keras_layer(ours: str, theirs: str, kernel: str = "i o -> o i") -> Table:
    """Return the rows of a layer's weight and bias, which Keras numbers."""
    return (
        *row(f"{ours}.weight", f"{theirs}/vars/0", kernel),
        *row(f"{ours}.bias", f"{theirs}/vars/1"),
    )


def keras_norm(ours: str, theirs: str) -> Table:
    """Return the rows of a norm's gain and bias."""
    return keras_layer(ours, theirs, "")


def keras_heads(ours: str, theirs: str, names: tuple[str, ...], heads: str = "h d") -> Table:
    """Return the rows of projections of a ``MultiHeadAttention``, joined."""
    apart = tuple(f"{theirs}/{name}_dense/vars/" for name in names)
    kernels, biases = (tuple(f"{each}{number}" for each in apart) for number in (0, 1))
    return (
        *row(f"{ours}.weight", kernels, f"i {heads} -> ({heads}) i"),
        *row(f"{ours}.bias", biases, f"{heads} -> ({heads})"),
    )


def keras_attention(ours: str, theirs: str) -> Table:
    """Return the rows of a block's ``MultiHeadAttention``, whose heads are a separate axis."""
    return (
        *keras_heads(f"{ours}.qkv", theirs, ("query", "key", "value")),
        *keras_layer(f"{ours}.proj", f"{theirs}/output_dense", "h d o -> o (h d)"),
    )


def keras_blocks(block: Callable[[str, str], Table], first: str) -> Table:
    """Return the rows of all blocks: only the names of those after the first have a number."""
    return (*block("blocks.0", first), *block("blocks.{i}", f"{first}_{{i}}"))


def activation(name: str, default: str, more: Mapping[str, str] | None = None) -> Key:
    """Return the entry of the activation.

    Args:
        more: names that the model's own code knows beside Keras'.
    """
    known = {**ACTS, **(more or {})}
    written = {ours: theirs for theirs, ours in reversed(known.items())}
    return Key(name, "act", default, among(known), written.__getitem__)


@dataclass(frozen=True)
class KerasSettings:
    """KerasHub's ``config.json`` of a backbone, or of a larger model around it (also ``task.json``)."""

    module: str
    """Module of the backbone's class, under ``keras_hub.src.models``."""
    name: str
    """That class."""
    keys: tuple[Key, ...]
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Larger models' classes, each with the entry that holds the backbone."""
    derive: Callable[[Entries], dict[str, Any]] = lambda entries: {}
    """Returns fields that take several entries."""
    entries: Callable[[ViTConfig], dict[str, Any]] = lambda cfg: {}
    """Returns the entries that `derive` reads, and those that the library needs beside them."""

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the file is of this model."""
        return config_of(sidecars).get("class_name") in (self.name, *self.hosts)

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the file states. ConfigError: no schema has its values."""
        config = config_of(sidecars)
        entries, host = config["config"], self.hosts.get(config["class_name"])
        entries = entries[host]["config"] if host else entries
        *size, channels = entries["image_shape"]
        fields = {"image_size": tuple(size), "in_channels": channels, "num_classes": 0}
        for key in self.keys:
            fields |= key.into_fields(entries)
        return {**fields, **self.derive(entries)}

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return nothing: how pixels are prepared is in no file that is read."""
        return Metadata()

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return ``config.json``."""
        entries: dict[str, Any] = {"image_shape": [*cfg.image_size, cfg.in_channels]}
        for key in self.keys:
            entries |= key.into_entry(cfg)
        return {CONFIG: keras_object(self.module, self.name, {**entries, **self.entries(cfg)})}


def config_of(sidecars: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the outermost model; empty if there is none."""
    return next((each for name in (TASK, CONFIG) if isinstance(each := sidecars.get(name), dict)), {})


def keras_object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of an object of KerasHub in Keras' files."""
    return {
        "module": f"keras_hub.src.models.{module}",
        "class_name": name,
        "config": config,
        "registered_name": f"keras_hub>{name}",
    }


def keras_dialect(name: str, title: str, **own: Any) -> Dialect:
    """Build a dialect of KerasHub."""
    return Dialect(
        name=f"keras-hub-{name}",
        title=f"KerasHub's {title}",
        family="keras-hub",
        container="hdf5",
        weights_name="model.weights.h5",
        ignored=("optimizer/*", *own.pop("ignored", ())),
        **own,
    )
