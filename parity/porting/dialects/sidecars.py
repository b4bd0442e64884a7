"""Reads the config files beside the weights, which come from strangers and may hold anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from parity.porting.dialects.dialect import Dialect
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, Preprocess, ViTConfig
from vit_config.errors import USER_ERRORS

T = TypeVar("T")

CONFIG = "config.json"
DEEPEST = 3
"""Maximum depth of nested configs that are searched."""


class Sidecars:
    """The config files beside the weights, with a cache of each dialect's reading of them.

    Args:
        contents: parsed JSON files by file name.
        section: the entry of a larger model's config.json that takes the place of config.json here.
        classes: the number of classes of another head than the files'; None if it is theirs.
    """

    def __init__(self, contents: Mapping[str, Any], section: str = "", classes: int | None = None):
        self.contents = dict(contents)
        self.section = section
        self.classes = classes
        self._read: dict[tuple[str, str], Any] = {}

    def are_of(self, dialect: Dialect) -> bool:
        """Return whether the files are this dialect's."""
        return self._once("recognise", dialect, lambda: self._recognised(dialect))

    def fields(self, dialect: Dialect) -> dict[str, Any]:
        """Return the schema's fields that the files state; none if they are not this dialect's.

        Raises:
            ConfigError: they state a model that no schema can express, or are not of the form that the
                dialect's library writes.
        """
        settings = dialect.settings
        if settings is None or not self.are_of(dialect):
            return {}
        fields = self._once("fields", dialect, lambda: _guarded(lambda: settings.fields(self.contents)))
        return fields if self.classes is None else {**fields, "num_classes": self.classes}

    def of_relative(self, dialect: Dialect) -> tuple[dict[str, Any], str]:
        """Read a related model's config.json by the entries that it shares with the dialect.

        Used for a dialect that the user asks for. Returns the fields and the related model's name.

        Raises:
            ConfigError: see `fields`.
        """
        read = getattr(dialect.settings, "of_relative", None)
        if read is None or self.are_of(dialect):
            return {}, ""
        return self._once("relative", dialect, lambda: _guarded(lambda: read(self.contents)))

    def metadata(self, dialect: Dialect) -> Metadata:
        """Return the files' preprocessing, class names and licence; none if they are not this dialect's.

        Raises:
            ConfigError: see `fields`.
        """
        settings = dialect.settings
        if settings is None or not self.are_of(dialect):
            return Metadata()
        fields = self.fields(dialect)
        metadata = self._once(
            "metadata", dialect, lambda: _guarded(lambda: settings.metadata(self.contents, fields))
        )
        return metadata if self.classes is None else metadata.replace(class_names=None)

    def notes(self, dialect: Dialect) -> list[str]:
        """Return notes for the user on the model that the files describe."""
        notes = getattr(dialect.settings, "notes", None)
        return notes(self.contents, self.section) if notes and self.are_of(dialect) else []

    @property
    def model_type(self) -> str:
        """The ``model_type`` in transformers' config.json; empty if there is none."""
        config = self.contents.get(CONFIG)
        kind = config.get("model_type") if isinstance(config, dict) else None
        return kind if isinstance(kind, str) else ""

    @property
    def quantiser(self) -> str:
        """What quantised the weights by transformers' config.json; empty if it says nothing of it."""
        config = self.contents.get(CONFIG)
        how = config.get("quantization_config") if isinstance(config, dict) else None
        told = how.get("quant_method") if isinstance(how, dict) else None
        return told if isinstance(told, str) else ""

    def contradiction(self, dialect: Dialect) -> str:
        """Say that config.json names another model type than the dialect's; empty if it does not."""
        model_type, known = self.model_type, getattr(dialect.settings, "model_types", ())
        if not model_type or not known or model_type in known:
            return ""
        return (
            f"config.json says model_type = {model_type}, but its tensors are named as those of"
            f" {dialect.title}"
        )

    def is_relative(self, dialect: Dialect) -> bool:
        """Return whether config.json is of a model whose code was compared with the dialect's and
        computes the same of its entries and tensors."""
        return self.model_type in getattr(dialect.settings, "relatives", ())

    def of_tower(self, dialects: Iterable[Dialect]) -> tuple[Sidecars, str]:
        """Return the config files of the one part of a larger model that is a Vision Transformer.

        Such is ``vision_config`` of LLaVA, or ``encoder`` of a VisionEncoderDecoderModel. The second
        value is a note on the part. If config.json is itself of a known model, or has not exactly one
        such part, the files are returned unchanged, with an empty note.
        """
        every = list(dialects)
        if not self.model_type or any(self.are_of(each) for each in every):
            return self, ""
        known = [
            (name, inner)
            for name, inner in self._sections(self.contents[CONFIG])
            if inner.model_type and any(inner.are_of(each) for each in every)
        ]
        if len(known) != 1:
            return self, ""
        ((name, inner),) = known
        return inner, f"took {name} of config.json, whose model_type is {self.model_type}"

    def _sections(self, config: dict[str, Any], within: str = "") -> Iterator[tuple[str, Sidecars]]:
        """Yield every nested config with its path: ColPali's tower is two levels down."""
        for name, section in config.items():
            if isinstance(section, dict) and within.count(".") < DEEPEST:
                inner = Sidecars({**self.contents, CONFIG: section}, name, self.classes)
                yield f"{within}{name}", inner
                yield from self._sections(section, f"{within}{name}.")

    def _recognised(self, dialect: Dialect) -> bool:
        try:
            return dialect.settings is not None and dialect.settings.recognise(self.contents)
        except Exception:  # its form is not what the library writes, so it is another library's
            return False

    def _once(self, what: str, dialect: Dialect, read: Callable[[], T]) -> T:
        key = what, dialect.name
        if key not in self._read:
            self._read[key] = read()
        return self._read[key]


class Beside(Protocol):
    """A tower that is written beside an image tower."""

    def files(self, files: Mapping[str, Any], image: ViTConfig) -> Mapping[str, Any]:
        """Return the config files of both, given those of the image tower."""
        ...


def texts(
    dialect: Dialect, cfg: ViTConfig, metadata: Metadata, beside: Beside | None = None
) -> dict[str, str]:
    """Return the text files to write beside a model's weights, by name.

    They are config files, or Python code if config files cannot express the model.

    Raises:
        ConfigError: neither can express it.
    """
    if dialect.settings is None:
        return {}
    try:
        files = dialect.settings.files(cfg, metadata)
    except ConfigError:
        if code := dialect.code(cfg, metadata):
            return code
        raise
    both = files if beside is None else beside.files(files, cfg)
    written = {name: json.dumps(content, indent=2) + "\n" for name, content in both.items()}
    return {**written, **dialect.module(cfg)}


def unsaid(dialect: Dialect, cfg: ViTConfig, metadata: Metadata) -> str:
    """Say which preprocessing a dialect's config files cannot express, and what its library does then.

    Empty if they express all of it.
    """
    if dialect.settings is None or metadata.pixels is None:
        return ""
    if dialect.code(cfg, metadata):
        return ""  # the code expresses everything
    written = Sidecars(dialect.settings.files(cfg, metadata))
    pixels, stated = metadata.pixels, written.metadata(dialect).pixels
    if stated is None:
        return f"no config file of {dialect.title} says how its pixels are prepared"
    pixels, stated = (
        each if each.max_patches else each.replace(image_size=each.image_size or cfg.image_size)
        for each in (pixels, stated)
    )
    size = pixels.image_size or cfg.image_size
    if stated.resized(size) == pixels.resized(size):  # a quotient may be written as two whole numbers
        stated = stated.replace(crop_fraction=pixels.crop_fraction)
    different = [name for name in Preprocess.fields() if getattr(stated, name) != getattr(pixels, name)]
    if not different:
        return ""
    ours, theirs = (
        ", ".join(f"{name} = {getattr(each, name)}" for name in different) for each in (pixels, stated)
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
