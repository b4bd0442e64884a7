"""Fields that no shape shows: some follow from a dialect's code, the user is asked for the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from parity.porting.dialects.dialect import ANY, SIZES, Dialect
from parity.porting.dialects.shapes import Shapes
from vit_config import PRESETS, ViTConfig, preset
from vit_config.errors import UnstatedError

SILENT = {
    "num_heads": "N", "norm_eps": "EPS", "act": "ACT", "pool": "POOL", "patch_size": "HxW",
    "image_size": "HxW", "pos_embed": "POSITIONS", "rope": "ROPE", "block": "BLOCK",
    "patch_embed": "ORDER", "pool_prefix": "BOOL", "pool_num_heads": "N", "head_activation": "ACT",
}  # fmt: skip
"""Fields that change the function but that no shape shows, in the order in which they are asked for;
each with the placeholder for its value in a question."""


ROPE = ("kind", "theta", "axes", "pairs")
"""Entries that rotary positions must state."""


def decided(dialect: Dialect, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the silent fields for which the library's code has a single value.

    Args:
        fields: the fields known already.
    """
    return {
        name: values[0]
        for name in SILENT
        if name not in fields and name not in dialect.asks and _has_effect(name, fields)
        for values in [_values(dialect, name)]
        if isinstance(values, tuple) and len(values) == 1
    }


def unstated(dialect: Dialect, fields: Mapping[str, Any]) -> list[str]:
    """Return the silent fields that are unknown and have an effect."""
    return [name for name in SILENT if name not in fields and _has_effect(name, fields)]


def question(
    dialect: Dialect, names: Sequence[str], shapes: Shapes, like: Mapping[str, Any]
) -> UnstatedError:
    """Build the error that asks the user for fields.

    Args:
        like: the fields that shapes show, for the choice of presets to suggest.
    """
    flags = " ".join(f"{name}={SILENT[name]}" for name in names)
    said = [text for name in names if (text := _explained(dialect, name, shapes))]
    return UnstatedError(
        f"cannot infer {', '.join(names)}; give --set {flags}, or --like PRESET{_presets(like)}"
        + "".join(f"; {text}" for text in said),
        tuple(names),
    )


def _values(dialect: Dialect, name: str) -> Any:
    """Return the values of a field that a dialect can express; `ANY` if they depend on other fields."""
    if name in SIZES:
        return ANY
    values = dialect.can.get(name, (ViTConfig.model_fields[name].default,))
    return ANY if callable(values) else values


def _has_effect(name: str, fields: Mapping[str, Any]) -> bool:
    """Return whether a field may change a model's function, given the fields known so far."""
    if name == "pool_prefix":
        prefix = ("class_token", "distill_token", "register_tokens")
        return fields.get("pool") in ("mean", "map") and any(fields.get(token) for token in prefix)
    if name == "pool_num_heads":
        return fields.get("pool") == "map"
    if name == "head_activation":
        return bool(fields.get("num_classes"))
    return True


def _explained(dialect: Dialect, name: str, shapes: Shapes) -> str:
    """Describe a field's possible values, if they are a choice or follow from a shape."""
    if name == "patch_size":
        values = shapes["patch_embed.proj.weight"][-1]
        return f"a patch has {values} values, such as {' or '.join(_patches(values))}"
    if name == "rope":
        return "rope: null for none, or JSON with " + ", ".join(ROPE)
    if name == "pos_embed":
        kinds = [kind for kind in _words(name) if kind != "learned"]
        return f"the file has no position table, so pos_embed is {', '.join(kinds)}"
    words = _values(dialect, name)
    words = tuple(dict.fromkeys(words)) if isinstance(words, tuple) else _words(name)
    if name == "pool" and "cls_token" in shapes:
        words = [each for each in words if each in ("class", "mean")]
    return f"{name}: {', '.join(words)}" if words and all(isinstance(w, str) for w in words) else ""


def _words(name: str) -> tuple[Any, ...]:
    """Return the values of a field that is a choice of words; empty for any other field."""
    kind = ViTConfig.model_fields[name].annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


def _patches(values: int) -> Iterator[str]:
    """Yield the largest square patches, up to three, that have this number of values."""
    fitting = [side for side in range(2, math.isqrt(values) + 1) if values % (side * side) == 0]
    for side in fitting[:-4:-1]:
        yield f"{side}x{side} in {values // (side * side)} channels"


def _presets(like: Mapping[str, Any]) -> str:
    """Return the first presets of the same shapes, in brackets."""
    fit = [
        name
        for name, cfg in ((name, preset(name)) for name in PRESETS)
        if all(getattr(cfg, field) == value for field, value in like.items())
    ]
    more = f" and {len(fit) - 3} others" if len(fit) > 3 else ""
    return f" (of these shapes: {', '.join(fit[:3])}{more})" if fit else ""
