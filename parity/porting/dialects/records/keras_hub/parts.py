"""What KerasHub's models share: names and layouts of Keras' layers, and the form of the config files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.records.hf.keys import CONFIG, Entries, Key, among
from parity.porting.dialects.table import Table, respell_names
from parity.porting.formats.metadata import Metadata
from vit_config import ViTConfig

TASK = "task.json"
CONV, MATRIX = "p q c o -> o c p q", "i o -> o i"
HEADS = {
    "attn.qkv.weight": "i h d -> (h d) i", "attn.qkv.bias": "h d -> (h d)",
    "attn.proj.weight": "h d o -> o (h d)",
}  # fmt: skip
"""Layouts of a ``MultiHeadAttention``."""
SIZES = (
    Key("num_layers", "depth", None),
    Key("num_heads", "num_heads", None),
    Key("hidden_dim", "hidden_size", None),
)
SQUARE_PATCH = Key("patch_size", "patch_size", None, lambda side: (side, side), lambda size: size[0])
LEAVES = {"weight": 0, "lambda1": 0, "bias": 1}
"""Numbers that Keras gives to a layer's weights."""


def keras_table(
    table: Table, names: Mapping[str, str] | None = None, heads: Mapping[str, str] = HEADS
) -> Table:
    """Return a table of PyTorch's names and layouts by those of Keras.

    Args:
        names: parts of the names, each with Keras' in its place. The first block has none of ``_{i}``.
        heads: layouts of the blocks' attention; none where the heads are no axis of their own.
    """
    rows = []
    for each in respell_names(table, names or {}):
        ours, theirs = each.ours[0] or "", tuple(map(_numbered, each.theirs))
        matrix = ours.endswith(".weight") and "norm" not in ours
        usual = CONV if ours == "patch_embed.proj.weight" else MATRIX if matrix else each.layout
        layout = heads.get(ours.removeprefix("blocks.{i}."), usual)
        if "{i}" in ours:
            first = tuple(name.replace("_{i}", "") for name in theirs)
            own = (ours.replace("{i}", "0"),)
            rows.append(replace(each, ours=own, theirs=first, layout=layout))
        rows.append(replace(each, theirs=theirs, layout=layout))
    return tuple(rows)


def _numbered(name: str) -> str:
    path, _, leaf = name.replace("/", ".").rpartition(".")
    name = f"{path}.vars.{LEAVES[leaf]}" if leaf in LEAVES else name
    return name.replace(".", "/")


def activation(name: str, default: str, **more: str) -> Key:
    """Return the entry of the activation; Keras' own GELU is exact.

    Args:
        more: names that the model's own code knows, with ours.
    """
    known = {"gelu": "gelu", "swish": "silu", "silu": "silu", "relu": "relu", **more}
    return Key(name, "act", default, among(known), {known[each]: each for each in known}.__getitem__)


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
