"""Fields that no shape shows: some follow from a dialect's code, the user is asked for the others.

Whatever a file leaves open is asked for in one sentence, so that one answer is enough.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from parity.porting.dialects.dialect import ANY, SIZES, Dialect, Unsaid
from parity.porting.dialects.shapes import Shapes
from vit_config import PRESETS, ViTConfig, preset
from vit_config.errors import UnstatedError

SILENT = {
    "num_heads": "N", "norm_eps": "EPS", "act": "ACT", "pool": "POOL", "patch_size": "HxW",
    "image_size": "HxW", "pos_embed": "POSITIONS", "rope": "ROPE", "block": "BLOCK",
    "patch_embed": "ORDER", "pool_prefix": "true|false", "pool_num_heads": "N", "head_activation": "ACT",
    "pos_embed_resize": "RULE", "pos_embed_aspect": "ASPECT", "final_norm": "NORM", "pool_window": "N",
    "attention_scale": "FACTOR", "v_norm": "true|false", "centre_pixels": "true|false",
}  # fmt: skip
"""Fields that change the function but that no shape shows, in the order in which they are asked for;
each with the placeholder for its value in a question."""
HOLDERS = {**SILENT, "in_channels": "N"}
"""The placeholder of every field that may be asked for."""


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


class Question(NamedTuple):
    """A question that a file leaves open."""

    fields: tuple[str, ...] = ()
    """Fields of the schema that would state it; if there are none, `said` names the flag."""
    said: tuple[str, ...] = ()
    """What is known of it, a sentence each."""
    by_preset: bool = True
    """Whether a preset would state it, too."""


def ask(questions: Sequence[Question], like: Mapping[str, Any] | None = None) -> UnstatedError:
    """Build the error that asks the user for everything at once.

    Args:
        like: the fields that shapes show, for the choice of presets to suggest.
    """
    names = tuple(dict.fromkeys(name for each in questions for name in each.fields))
    texts = [text for each in questions for text in each.said]
    if names:
        flags = " ".join(f"{name}={HOLDERS[name]}" for name in names)
        fits = {name: value for name, value in (like or {}).items() if name not in names}
        or_preset = all(each.by_preset for each in questions if each.fields)
        preset = f", or --like PRESET{_presets(fits)}" if or_preset else ""
        texts.insert(0, f"cannot infer {', '.join(names)}; give --set {flags}{preset}")
    return UnstatedError("; ".join(texts), names)


def of_unstated(dialect: Dialect, fields: Mapping[str, Any], shapes: Shapes) -> Question:
    """Return the question for the silent fields that are unknown; without fields if there are none."""
    names = unstated(dialect, fields)
    explained = (_explained(dialect, name, fields, shapes) for name in names)
    return Question(tuple(names), tuple(filter(None, explained)))


def of_unsaid(name: str, value: Unsaid, where: str) -> Question:
    """Return the question for a field of which a file states what no schema can express."""
    words = value.instead or _words(name)
    choice = (f"{name}: {', '.join(words)}",) if words else ()
    return Question((name,), (f"{where} says {value.said}, and {value.why}", *choice), by_preset=False)


def of_half_a_rope(stated: Mapping[str, Any]) -> Question | None:
    """Return the question for entries of rope that the user left out: the schema's defaults would fill
    them."""
    rope = stated.get("rope")
    left = [name for name in ROPE if name not in rope] if isinstance(rope, dict) else []
    if not left:
        return None
    text = f"rope = {json.dumps(rope)} leaves {', '.join(left)} open"
    return Question(("rope",), (text, f"rope: JSON with {', '.join(ROPE)}"), by_preset=False)


def of_look_alike(dialect: Dialect, fields: Mapping[str, Any]) -> Question | None:
    """Return the question for the dialect, if another one has the same names and shapes but computes
    another function."""
    other = dialect.mistaken_for(fields)
    text = f"its tensors are named as those of {dialect.name} and of {other}, which compute otherwise"
    return Question(said=(f"{text}; choose one of the two by --dialect",)) if other else None


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
    if name in ("pool_num_heads", "pool_window"):
        return fields.get("pool") == {"pool_num_heads": "map", "pool_window": "soft"}[name]
    if name == "head_activation":
        return bool(fields.get("num_classes"))
    if name in ("pos_embed_resize", "pos_embed_aspect"):  # of a table that fits no image as it is
        return fields.get("pos_embed_grid") is not None
    return True


def _explained(dialect: Dialect, name: str, fields: Mapping[str, Any], shapes: Shapes) -> str:
    """Describe a field's possible values, if they are a choice or follow from a shape."""
    if name == "patch_size":
        values = shapes["patch_embed.proj.weight"][-1]
        return f"a patch has {values} values, such as {' or '.join(_patches(values))}"
    if name == "rope":
        return "rope: null for none, or JSON with " + ", ".join(ROPE)
    if name == "pos_embed":
        kinds = [kind for kind in _words(name) if kind != "learned"]
        return f"the file has no position table, so pos_embed is {', '.join(kinds)}"
    if name == "pool_num_heads":
        return "pool_num_heads: 8 in every published Perception Encoder, num_heads in SigLIP's"
    words = _values(dialect, name)
    words = tuple(dict.fromkeys(words)) if isinstance(words, tuple) else _words(name)
    if name == "pool" and "cls_token" in shapes:
        words = [each for each in words if each in ("class", "mean")]
    if not words or not all(isinstance(word, str) for word in words):
        return ""
    return f"{name}: {', '.join(_with_more(dialect, name, word, fields) for word in words)}"


def _with_more(dialect: Dialect, name: str, word: str, fields: Mapping[str, Any]) -> str:
    """Return a value of a field, with the further fields that it would leave open."""
    then = {**fields, name: word}
    then |= {each: fixed.value for each, fixed in dialect.follows(then).items() if each not in then}
    then |= decided(dialect, then)
    more = [each for each in unstated(dialect, then) if each not in unstated(dialect, fields)]
    return f"{word} (with {' '.join(f'{each}={SILENT[each]}' for each in more)})" if more else word


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
