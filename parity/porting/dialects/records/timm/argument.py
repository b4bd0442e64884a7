"""Kinds of arguments of timm's model classes, each convertible to fields of a schema and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vit_config import ConfigError, ViTConfig

TENSORS_TELL = object()
"""Stands for the value of a field that depends on several arguments but that the tensors show."""
NEEDLESS = object()
"""Stands for the value of an argument that has no effect on a model."""

Fields = dict[str, Any]
EPS = 1e-6
"""Epsilon of a norm that is given by its name alone."""


class Argument(NamedTuple):
    """One argument of a class."""

    said: Callable[[ViTConfig], Any]
    """Returns its value for a model; None if the argument must not be given."""
    meant: Callable[[Any, Fields], Fields]
    """Returns the fields that a value means, given those known so far."""


def same(field: str, *tell: str) -> Argument:
    """Describe an argument that is a field; fields in `tell` are left to the tensors if it is given."""
    rest = dict.fromkeys(tell, TENSORS_TELL)
    return Argument(lambda cfg: getattr(cfg, field), lambda value, known: {field: plain(value), **rest})


def word(field: str, words: Mapping[Any, Any], *tell: str) -> Argument:
    """Describe an argument with its own words for the values of a field."""
    back = {ours: theirs for theirs, ours in reversed(list(words.items()))}
    rest = dict.fromkeys(tell, TENSORS_TELL)

    def meant(value: Any, known: Fields) -> Fields:
        if value not in words:
            raise ConfigError(f"{value!r}; expected one of {', '.join(repr(word) for word in words)}")
        return {field: words[value], **rest}

    return Argument(lambda cfg: back[getattr(cfg, field)], meant)


def shown(value_of: Callable[[ViTConfig], Any], *tell: str) -> Argument:
    """Describe an argument whose effect the tensors show."""
    return Argument(value_of, lambda value, known: dict.fromkeys(tell, TENSORS_TELL))


def size(field: str) -> Argument:
    """Describe an argument that is a height and a width, or one number for both."""

    def said(cfg: ViTConfig) -> Any:
        height, width = getattr(cfg, field)
        return height if height == width else [height, width]

    return Argument(said, lambda value, known: {field: pair(value)})


def only(value: Any) -> Argument:
    """Describe an argument that is supported with one value only."""

    def meant(given: Any, known: Fields) -> Fields:
        if given != value:
            raise ConfigError(f"{given!r}; expected {value!r}")
        return {}

    return Argument(lambda cfg: NEEDLESS, meant)


def no_effect() -> Argument:
    """Describe an argument that no field expresses and that does not change the function."""
    return Argument(lambda cfg: NEEDLESS, lambda value, known: {})


def training(*fields: str) -> Argument:
    """Describe a dropout rate; it is not written, as timm does not write it."""
    return Argument(lambda cfg: NEEDLESS, lambda value, known: dict.fromkeys(fields, float(value)))


def ratio(hidden: int, width: int) -> float:
    """Return a ratio for which timm's ``int(width * ratio)`` is the hidden width."""
    quotient = hidden / width
    return quotient if int(width * quotient) == hidden else math.nextafter(quotient, math.inf)


def pair(value: Any) -> tuple[int, int]:
    """Convert a size from JSON to the schema's pair."""
    return (value, value) if isinstance(value, int) else tuple(value)


def plain(value: Any) -> Any:
    """Convert a value from JSON to the schema's: a list to a tuple."""
    return tuple(value) if isinstance(value, list) else value


def gain(zero: bool) -> Argument:
    """Describe the initial layer scale; with `zero`, 0 is written if there is none."""

    def said(cfg: ViTConfig) -> Any:
        return 0.0 if zero and cfg.layer_scale is None and cfg.block != "parallel" else cfg.layer_scale

    return Argument(said, lambda value, known: {"layer_scale": value or TENSORS_TELL})
