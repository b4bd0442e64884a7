"""Entries of ``config.json`` that are fields of the schema, and those that most models share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parity.porting.dialects.dialect import Unsaid
from vit_config import ConfigError, ViTConfig

CONFIG = "config.json"
ASKED = ("num_heads", "norm_eps", "act")
"""Fields for which the user is asked if the entry is null, or a list or object."""
Entries = Mapping[str, Any]

ACTS = {
    "gelu": "gelu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "quick_gelu": "quick_gelu", "silu": "silu", "swish": "silu", "relu": "relu",
}  # fmt: skip
"""Our activations by the library's names; of several names for one, the first is written."""


def _same(value: Any) -> Any:
    return value


def among(known: Mapping[str, str]) -> Callable[[Any], str]:
    """Return the function that reads one of the library's names as ours."""

    def read(name: Any) -> str:
        if name not in known:
            raise ConfigError(f"is none of {', '.join(known)}, which a schema supports")
        return known[name]

    return read


def _act_name(act: str) -> str:
    return next(name for name, ours in ACTS.items() if ours == act)


def _pair(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def _side(size: tuple[int, int]) -> int | list[int]:
    return size[0] if size[0] == size[1] else list(size)


@dataclass(frozen=True)
class Key:
    """An entry that is one field of the schema, or the common value of several fields."""

    name: str
    fields: str | tuple[str, ...]
    default: Any
    """The library's default for a missing entry; also written if the fields' values differ."""
    read: Callable[[Any], Any] = _same
    write: Callable[[Any], Any] = _same
    file: str = CONFIG

    def into_fields(self, entries: Entries) -> dict[str, Any]:
        """Return the fields that the entry states.

        Raises:
            ConfigError: the schema cannot express the value.
        """
        value = entries.get(self.name, self.default)
        asked = self.fields if self.fields in ASKED else ""
        if value is None and asked:
            return {}
        if asked and isinstance(value, list | dict):
            return {asked: Unsaid(f"{self.name} = {value!r}", "that is no value")}
        try:
            return dict.fromkeys(self._names, self.read(value))
        except ConfigError as error:
            raise ConfigError(f"{self.file}: {self.name} = {value!r} {error}") from None
        except (TypeError, ValueError):
            raise ConfigError(
                f"{self.file}: {self.name} = {value!r}, which is not a valid value"
            ) from None

    def into_entry(self, cfg: ViTConfig) -> dict[str, Any]:
        """Return the entry that states a schema's fields."""
        first, *others = (getattr(cfg, name) for name in self._names)
        agreed = all(value == first for value in others)
        return {self.name: self.write(first) if agreed else self.default}

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.fields,) if isinstance(self.fields, str) else self.fields


def sizes(
    *,
    norm_eps: float,
    eps_entry: str = "layer_norm_eps",
    hidden_size: int = 768,
    depth: int = 12,
    num_heads: int = 12,
    patch_size: int = 16,
    image_size: int = 224,
    act: str = "gelu",
) -> tuple[Key, ...]:
    """Return the entries that every model here has, with this model's defaults."""
    return (
        Key("hidden_size", "hidden_size", hidden_size),
        Key("num_hidden_layers", "depth", depth),
        Key("num_attention_heads", "num_heads", num_heads),
        Key("num_channels", "in_channels", 3),
        Key("image_size", "image_size", image_size, _pair, _side),
        Key("patch_size", "patch_size", patch_size, _pair, _side),
        Key(eps_entry, "norm_eps", norm_eps, float),
        act_key(act),
    )


def act_key(default: str) -> Key:
    """Return the entry of the activation."""
    return Key("hidden_act", "act", default, among(ACTS), _act_name)


MLP = (Key("intermediate_size", "mlp_dim", 3072),)
DROPOUT = (
    Key("hidden_dropout_prob", ("dropout_embed", "dropout_attention_out", "dropout_mlp_outer"), 0.0),
    Key("attention_probs_dropout_prob", "dropout_attention", 0.0),
)


def head_dim(entries: Entries) -> dict[str, Any]:
    """Read ``head_dim``, which files rarely have; a width that the heads have anyway gives None."""
    width, heads, d = (entries.get(k) for k in ("hidden_size", "num_attention_heads", "head_dim"))
    return {"attention_head_dim": None if d is None or d * heads == width else d}


def head_dim_entry(cfg: ViTConfig) -> dict[str, Any]:
    """Return the entry ``head_dim`` if the schema needs it."""
    return {"head_dim": cfg.head_dim} if cfg.attention_head_dim else {}
