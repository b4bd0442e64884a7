"""What the config files beside the weights say; whatever may be in them, as they come from strangers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from parity.porting.dialects.dialect import Dialect
from parity.porting.metadata import Card
from vit_config import ConfigError, Preprocess, ViTConfig
from vit_config.errors import USER_ERRORS

T = TypeVar("T")


def tell(dialect: Dialect, sidecars: Mapping[str, Any]) -> bool:
    """Whether they are this dialect's."""
    try:
        return dialect.settings is not None and dialect.settings.recognise(sidecars)
    except Exception:  # not of the form that its library writes, so it is not the library's
        return False


def fields(dialect: Dialect, sidecars: Mapping[str, Any]) -> dict[str, Any]:
    """The schema's fields that they state; none if they are not this dialect's.

    Raises:
        ConfigError: they state what no schema can say, or are not of the form that its library writes.
    """
    settings = dialect.settings
    if settings is None or not tell(dialect, sidecars):
        return {}
    return _guarded(lambda: settings.fields(sidecars))


def card(dialect: Dialect, sidecars: Mapping[str, Any]) -> Card:
    """What they state of pixels, names of classes and licence; nothing if they are not this dialect's.

    Raises:
        ConfigError: see `fields`.
    """
    settings = dialect.settings
    if settings is None or not tell(dialect, sidecars):
        return Card()
    return _guarded(lambda: settings.card(sidecars))


def texts(dialect: Dialect, cfg: ViTConfig, card: Card) -> dict[str, str]:
    """What to write beside a model's weights, by file name: config files, or code where they cannot say
    the model.

    Raises:
        ConfigError: neither can.
    """
    if dialect.settings is None:
        return {}
    try:
        files = dialect.settings.files(cfg, card)
    except ConfigError:
        if code := dialect.code(cfg, card):
            return code
        raise
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}


def unsaid(dialect: Dialect, cfg: ViTConfig, card: Card) -> str:
    """What of the card's pixels the config files that a dialect writes do not say, in words, with what
    their readers take instead; empty where everything is said."""
    if dialect.settings is None or card.pixels is None:
        return ""
    if dialect.code(cfg, card):
        return ""  # which says everything
    meant, told = card.pixels, dialect.settings.card(dialect.settings.files(cfg, card)).pixels
    if told is None:
        return f"no config file of {dialect.title} says how its pixels are prepared"
    meant, told = (each.replace(image_size=each.image_size or cfg.image_size) for each in (meant, told))
    size = meant.image_size or cfg.image_size
    if told.resized(size) == meant.resized(size):  # a quotient may be written as two whole numbers
        told = told.replace(crop_fraction=meant.crop_fraction)
    different = [name for name in Preprocess.fields() if getattr(told, name) != getattr(meant, name)]
    if not different:
        return ""
    ours, theirs = (
        ", ".join(f"{name} = {getattr(each, name)}" for name in different) for each in (meant, told)
    )
    return f"no config file of {dialect.title} says {ours}; its library will take {theirs}"


def _guarded(read: Callable[[], T]) -> T:
    try:
        return read()
    except USER_ERRORS:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"its config files have an entry of another kind than expected ({type(error).__name__}:"
            f" {reason})"
        ) from None
