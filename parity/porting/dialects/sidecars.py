"""What the config files beside the weights say; whatever may be in them, as they come from strangers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from parity.porting.dialects.dialect import Dialect
from parity.porting.metadata import Card
from vit_config import ConfigError, Preprocess, ViTConfig
from vit_config.errors import USER_ERRORS

T = TypeVar("T")

CONFIG = "config.json"


def tell(dialect: Dialect, sidecars: Mapping[str, Any]) -> bool:
    """Whether they are this dialect's."""
    try:
        return dialect.settings is not None and dialect.settings.recognise(sidecars)
    except Exception:  # not of the form that its library writes, so it is not the library's
        return False


def model_type(sidecars: Mapping[str, Any]) -> str:
    """The ``model_type`` that transformers' config.json states; empty where there is none."""
    config = sidecars.get(CONFIG)
    told = config.get("model_type") if isinstance(config, dict) else None
    return told if isinstance(told, str) else ""


def contradiction(dialect: Dialect, sidecars: Mapping[str, Any]) -> str:
    """What config.json says a model is, if that is not a dialect's whose tensors it has, in words."""
    told, known = model_type(sidecars), getattr(dialect.settings, "model_types", ())
    if not told or not known or told in known:
        return ""
    return (
        f"config.json says model_type = {told}, but its tensors are named as those of {dialect.title};"
        f" give --dialect {dialect.name} if that is what it is"
    )


def of_tower(sidecars: Mapping[str, Any], dialects: Iterable[Dialect]) -> tuple[dict[str, Any], str]:
    """The config files of the one part of a larger model that is a Vision Transformer, and which that is
    in words; as they are where config.json is of a known model, or of several.

    Such is ``vision_config`` of LLaVA, or ``encoder`` of a VisionEncoderDecoderModel.
    """
    every = list(dialects)
    if not model_type(sidecars) or any(tell(each, sidecars) for each in every):
        return dict(sidecars), ""
    sections = {
        name: {**sidecars, CONFIG: section}
        for name, section in sidecars[CONFIG].items()
        if isinstance(section, dict) and model_type({CONFIG: section})
    }
    known = [n for n, inner in sections.items() if any(tell(each, inner) for each in every)]
    if len(known) != 1:
        return dict(sidecars), ""
    (name,) = known
    inner = sections[name]
    return inner, f"took {name} of config.json, which is of a {model_type(sidecars)}"


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
            f"its config files have an entry of an unexpected type ({type(error).__name__}: {reason})"
        ) from None
