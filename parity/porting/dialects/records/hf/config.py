"""Conversion between ``config.json`` of Hugging Face transformers and a schema.

A model is described by data: a `Key` for each entry that is one field, the values of other entries that
a schema can express, and two functions for fields that take several entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.records.hf import labels, preprocessor
from parity.porting.dialects.records.hf.keys import ACTS, CONFIG, Entries, Key, head_dim, sizes
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, ViTConfig

__all__ = ["ACTS", "NUMBERS", "HfSettings", "Key", "oblong", "sizes"]


SIZED = {"patch_size", "image_size"}
"""Entries that a config of images has and one of texts has not."""


@dataclass(frozen=True)
class HfSettings:
    """The config files of one model of the library."""

    model_types: Mapping[str, str]
    """Values of ``model_type`` that name this model, each with the section of its entries, such as
    ``vision_config``; empty if they are at the top level. The first is written."""
    keys: tuple[Key, ...]
    architecture: Callable[[ViTConfig], str]
    """Returns the name of the library's class for a schema."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Entries that change the function, each with the values that a schema can express. The first value
    is the library's default, and is written."""
    derive: Callable[[Entries], dict[str, Any]] = lambda entries: {}
    """Returns fields that take several entries; defaults of `keys` are filled in."""
    entries: Callable[[ViTConfig], dict[str, Any]] = lambda cfg: {}
    """Returns the entries that `derive` reads, given a schema."""
    refuse: Callable[[Mapping[str, Any]], Iterator[str]] = lambda fields: iter(())
    """Yields how the library's function differs from that of every schema, given the fields."""
    differs: Callable[[Entries, Mapping[str, Any]], Iterator[str]] = lambda entries, fields: iter(())
    """Yields the same as `refuse`, given entries and fields."""
    defaults: Mapping[str, Entries] = field(default_factory=dict)
    """Defaults of missing entries, by ``model_type``, where they are not the key's."""
    relatives: tuple[str, ...] = ()
    """Values of ``model_type`` of other models with the same tensors, whose code computes the same
    (tests/parity/porting/dialects/test_advised.py); the user is told of this dialect, and no other."""
    processor: str = "ViTImageProcessor"
    """Name of the image processor if ``preprocessor_config.json`` does not state it."""

    def recognise(self, sidecars: Entries) -> bool:
        """Return whether ``config.json`` is of this model."""
        return self._section(sidecars) is not None

    def fields(self, sidecars: Entries) -> dict[str, Any]:
        """Return the fields that ``config.json`` states, with the library's defaults for the others.

        Raises:
            ConfigError: it states a model that no schema can express.
        """
        entries = self._section(sidecars) or {}
        self._check(entries)
        entries = {**self.defaults.get(str(entries.get("model_type")), {}), **entries}
        fields: dict[str, Any] = {}
        for key in self.keys:
            fields |= key.into_fields(entries)
        try:
            fields |= self.derive({**{key.name: key.default for key in self.keys}, **entries})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{CONFIG}: {error}") from None
        if reasons := "; ".join((*self.refuse(fields), *self.differs(entries, fields))):
            raise ConfigError(f"{CONFIG}: {reasons}")
        return {**fields, **labels.num_classes(sidecars[CONFIG])}

    def notes(self, sidecars: Entries, section: str) -> list[str]:
        """Return notes for the user on the model.

        Args:
            section: the entry of a larger model's config that holds this one; empty if there is none.
        """
        entries = self._section(sidecars) or {}
        name = " ".join(map(str, entries.get("architectures") or ())) or section
        return list(_backbone_differences(entries)) if "backbone" in name.lower() else []

    def of_relative(self, sidecars: Entries) -> tuple[dict[str, Any], str]:
        """Read a related model's ``config.json`` by the entries of the same names.

        Missing entries give no fields: the related model has its own defaults for them.

        Returns:
            The fields, and the related model's name.

        Raises:
            ConfigError: it states a model that no schema can express.
        """
        config = sidecars.get(CONFIG)
        names = {key.name for key in self.keys}
        sections = [config, *config.values()] if isinstance(config, dict) else []
        likely = [
            each
            for each in sections
            if isinstance(each, dict) and "hidden_size" in each and SIZED & {*each}
        ]
        entries = max(likely, key=lambda each: len(names & {*each}), default={})
        entries = {name: value for name, value in entries.items() if value is not None}
        self._check({**{name: values[0] for name, values in self.only.items()}, **entries})
        fields: dict[str, Any] = head_dim(entries) if "head_dim" in entries else {}
        for key in self.keys:
            fields |= key.into_fields(entries) if key.name in entries else {}
        kind = entries.get("model_type", sidecars[CONFIG].get("model_type")) if entries else ""
        return fields, str(kind)

    def metadata(self, sidecars: Entries, fields: Mapping[str, Any]) -> Metadata:
        """Return the preprocessing from one file and the class names from the other."""
        pixels = sidecars.get(preprocessor.FILE)
        preprocess = preprocessor.read(pixels, self.processor, fields.get("image_size"))
        return Metadata(pixels=preprocess, class_names=labels.class_names(sidecars[CONFIG]))

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return ``config.json``, and ``preprocessor_config.json`` if that can express preprocessing."""
        architecture = self.architecture(cfg)
        kind, section = next(iter(self.model_types.items()))
        entries: dict[str, Any] = {name: values[0] for name, values in self.only.items()}
        for key in self.keys:
            entries |= key.into_entry(cfg)
        entries |= self.entries(cfg)
        content: dict[str, Any] = {"architectures": [architecture], "model_type": kind}
        content |= {section: entries} if section else entries
        if labels.HEAD in architecture:
            content |= labels.entries(cfg.num_classes, metadata.class_names)
        pixels, flat = metadata.pixels, self.processor == preprocessor.OF_PATCHES
        if pixels is not None and flat != (pixels.max_patches is not None):
            pixels = None  # a model of images takes no patches, and none of patches images
        pixel_entries = pixels and preprocessor.entries(pixels, cfg.image_size, cfg.patch_size)
        return {CONFIG: content, **({preprocessor.FILE: pixel_entries} if pixel_entries else {})}

    def _section(self, sidecars: Entries) -> dict[str, Any] | None:
        config = sidecars.get(CONFIG)
        if not isinstance(config, dict) or config.get("model_type") not in self.model_types:
            return None
        section = self.model_types[config["model_type"]]
        if not section and isinstance(config.get("vision_config"), dict):
            return None  # a larger model, whose type older files also use for its tower
        inner = config.get(section, {}) if section else config
        return inner if isinstance(inner, dict) else None

    def _check(self, entries: Entries) -> None:
        for name, values in self.only.items():
            if (value := entries.get(name, values[0])) not in values:
                words = " or ".join(map(repr, values))
                raise ConfigError(f"{CONFIG}: {name} = {value!r}, but a schema supports only {words}")


def oblong(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each size that is not square: the code is right only for square sizes."""
    for name in ("image_size", "patch_size"):
        height, width = fields[name]
        if height != width:
            yield f"{name} = {fields[name]}, and its positions are right for squares alone"


def no_classifier(cfg: ViTConfig) -> Iterator[str]:
    """Yield why a model without a classifier cannot be the schema's."""
    if cfg.num_classes:
        yield f"its model has no classifier (num_classes = {cfg.num_classes})"


class _Numbers:
    """The set of all numbers, for `Dialect.can`: the field must not be None."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def __iter__(self) -> Iterator[str]:
        return iter(("a number",))


NUMBERS = _Numbers()


def _backbone_differences(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a backbone's feature maps differ from the encoder's last tokens, a sentence each.

    Args:
        entries: the backbone's config; entries of another form are ignored.
    """
    depth, layers = entries.get("num_hidden_layers"), entries.get("out_indices")
    if isinstance(depth, int) and isinstance(layers, list) and layers:
        # the tokens before the first block count as one more
        blocks = sorted(each % (depth + 1) for each in layers if isinstance(each, int))
        if blocks and blocks[-1] < depth:
            yield (
                f"the backbone's maps end with block {blocks[-1]} of {depth} (out_indices = {layers});"
                " the whole encoder is read"
            )
    if entries.get("apply_layernorm") is False:
        yield "the backbone's maps come before the final norm (apply_layernorm = false), which is read"
