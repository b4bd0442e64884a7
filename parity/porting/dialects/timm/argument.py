"""The kinds of arguments that timm's model classes have: what each says of a schema, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vit_config import ConfigError, ViTConfig

TENSORS_TELL = object()
"""The value of a field that follows from several arguments, and that the tensors show anyway."""
NEEDLESS = object()
"""The value of an argument that has no effect on a model."""

Fields = dict[str, Any]
EPS = 1e-6
"""Of a norm that is given by its name alone."""


class Argument(NamedTuple):
    """One argument of a class."""

    said: Callable[[ViTConfig], Any]
    """Its value for a model; None where it must be left out, of an architecture that has none."""
    meant: Callable[[Any, Fields], Fields]
    """The fields that a value means, given those known so far."""


def same(field: str, *tell: str) -> Argument:
    """An argument that is a field, and others that the tensors tell after it has changed."""
    told = dict.fromkeys(tell, TENSORS_TELL)
    return Argument(lambda cfg: getattr(cfg, field), lambda value, known: {field: plain(value), **told})


def word(field: str, words: Mapping[Any, Any], *tell: str) -> Argument:
    """An argument with words for the values of a field."""
    back = {ours: theirs for theirs, ours in reversed(list(words.items()))}
    told = dict.fromkeys(tell, TENSORS_TELL)

    def meant(value: Any, known: Fields) -> Fields:
        if value not in words:
            raise ConfigError(f"{value!r}; expected one of {', '.join(repr(word) for word in words)}")
        return {field: words[value], **told}

    return Argument(lambda cfg: back[getattr(cfg, field)], meant)


def shown(said: Callable[[ViTConfig], Any], *tell: str) -> Argument:
    """An argument whose effect the tensors show."""
    return Argument(said, lambda value, known: dict.fromkeys(tell, TENSORS_TELL))


def size(field: str) -> Argument:
    """A height and a width, or one number for both."""

    def said(cfg: ViTConfig) -> Any:
        height, width = getattr(cfg, field)
        return height if height == width else [height, width]

    return Argument(said, lambda value, known: {field: pair(value)})


def only(value: Any) -> Argument:
    """An argument that is understood with one value alone."""

    def meant(given: Any, known: Fields) -> Fields:
        if given != value:
            raise ConfigError(f"{given!r}; expected {value!r}")
        return {}

    return Argument(lambda cfg: NEEDLESS, meant)


def no_effect() -> Argument:
    """An argument that acts on initial values or in training alone, for which the schema has no word."""
    return Argument(lambda cfg: NEEDLESS, lambda value, known: {})


def training(*fields: str) -> Argument:
    """A rate at which values are dropped in training; not written, as timm does not write it."""
    return Argument(lambda cfg: NEEDLESS, lambda value, known: dict.fromkeys(fields, float(value)))


def ratio(hidden: int, width: int) -> float:
    """The number by which timm multiplies a width, and cuts off, to make a hidden width."""
    found = hidden / width
    return found if int(width * found) == hidden else math.nextafter(found, math.inf)


def pair(value: Any) -> tuple[int, int]:
    """A size as JSON has it, as the schema has it."""
    return (value, value) if isinstance(value, int) else tuple(value)


def plain(value: Any) -> Any:
    """A value as JSON has it, as the schema has it."""
    return tuple(value) if isinstance(value, list) else value


def gain(zero: bool) -> Argument:
    """The initial gain; of most classes 0 says that there is none."""

    def said(cfg: ViTConfig) -> Any:
        return 0.0 if zero and cfg.layer_scale is None and cfg.block != "parallel" else cfg.layer_scale

    return Argument(said, lambda value, known: {"layer_scale": value or TENSORS_TELL})
