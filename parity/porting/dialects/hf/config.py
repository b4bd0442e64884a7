"""``config.json`` of Hugging Face transformers: from its entries to a schema, and back.

A model is described by data: a `Key` for each entry that is one field, the values that other entries
must have because no schema can say another, and two functions for whatever takes several entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.hf import labels, preprocessor
from parity.porting.dialects.hf.backbone import differences
from parity.porting.dialects.hf.keys import ACTS, CONFIG, Entries, Key, head_dim, sizes
from parity.porting.metadata import Metadata
from vit_config import ConfigError, ViTConfig

__all__ = ["ACTS", "NUMBERS", "HfSettings", "Key", "oblong", "sizes"]


SIZED = {"patch_size", "image_size"}
"""Entries by which the config of images is told from that of texts."""


@dataclass(frozen=True)
class HfSettings:
    """The config files of one model of the library."""

    model_types: Mapping[str, str]
    """The values of ``model_type`` that tell this model, and the entry that then holds its entries, such
    as ``vision_config``; empty where they are at the top. The first is written."""
    keys: tuple[Key, ...]
    architecture: Callable[[ViTConfig], str]
    """The library's class for a schema."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Entries that change the function, with the values that a schema can say; the library's default
    first. It is the first that is written."""
    derive: Callable[[Entries], dict[str, Any]] = lambda entries: {}
    """Fields that take several entries; `Key` defaults are filled in."""
    entries: Callable[[ViTConfig], dict[str, Any]] = lambda cfg: {}
    """And back."""
    refuse: Callable[[Mapping[str, Any]], Iterator[str]] = lambda fields: iter(())
    """What the library computes in another way than any schema, given the fields, a sentence each."""
    differs: Callable[[Entries, Mapping[str, Any]], Iterator[str]] = lambda told, fields: iter(())
    """The same, given the entries too."""
    defaults: Mapping[str, Entries] = field(default_factory=dict)
    """What the library takes for entries that are not there, by ``model_type``, where that is not the
    default of the key."""
    processor: str = "ViTImageProcessor"
    """What prepares pixels if ``preprocessor_config.json`` does not say."""

    def recognise(self, sidecars: Entries) -> bool:
        """Whether ``config.json`` is of this model."""
        return self._section(sidecars) is not None

    def fields(self, sidecars: Entries) -> dict[str, Any]:
        """The fields that ``config.json`` states, the library's defaults for what it leaves out.

        Raises:
            ConfigError: it states what no schema can say.
        """
        told = self._section(sidecars) or {}
        self._check(told)
        told = {**self.defaults.get(str(told.get("model_type")), {}), **told}
        found: dict[str, Any] = {}
        for key in self.keys:
            found |= key.into_fields(told)
        try:
            found |= self.derive({**{key.name: key.default for key in self.keys}, **told})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{CONFIG}: {error}") from None
        if said := "; ".join((*self.refuse(found), *self.differs(told, found))):
            raise ConfigError(f"{CONFIG}: {said}")
        return {**found, **labels.num_classes(sidecars[CONFIG])}

    def notes(self, sidecars: Entries, section: str) -> list[str]:
        """What the user should know of the model, a sentence each.

        Args:
            section: the entry of a larger model's config that this one is; empty where it is none.
        """
        told = self._section(sidecars) or {}
        name = " ".join(map(str, told.get("architectures") or ())) or section
        return list(differences(told)) if "backbone" in name.lower() else []

    def of_relative(self, sidecars: Entries) -> tuple[dict[str, Any], str]:
        """The fields that a ``config.json`` of another model states by entries of the same names, and
        what that model is called; nothing of what it leaves out, for which it has its own defaults.

        Raises:
            ConfigError: it states what no schema can say.
        """
        config = sidecars.get(CONFIG)
        names = {key.name for key in self.keys}
        sections = [config, *config.values()] if isinstance(config, dict) else []
        likely = [
            each
            for each in sections
            if isinstance(each, dict) and "hidden_size" in each and SIZED & {*each}
        ]
        told = max(likely, key=lambda each: len(names & {*each}), default={})
        told = {name: value for name, value in told.items() if value is not None}
        self._check({**{name: values[0] for name, values in self.only.items()}, **told})
        found: dict[str, Any] = head_dim(told) if "head_dim" in told else {}
        for key in self.keys:
            found |= key.into_fields(told) if key.name in told else {}
        return found, str(told.get("model_type", sidecars[CONFIG].get("model_type"))) if told else ""

    def metadata(self, sidecars: Entries, fields: Mapping[str, Any]) -> Metadata:
        """How pixels are prepared by one file, and what the classes are called by the other."""
        pixels = sidecars.get(preprocessor.FILE)
        found = preprocessor.read(pixels, self.processor, fields.get("image_size"))
        return Metadata(pixels=found, class_names=labels.class_names(sidecars[CONFIG]))

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """``config.json``, and ``preprocessor_config.json`` where it can say how pixels are prepared."""
        architecture = self.architecture(cfg)
        kind, section = next(iter(self.model_types.items()))
        told: dict[str, Any] = {name: values[0] for name, values in self.only.items()}
        for key in self.keys:
            told |= key.into_entry(cfg)
        told |= self.entries(cfg)
        content: dict[str, Any] = {"architectures": [architecture], "model_type": kind}
        content |= {section: told} if section else told
        if labels.HEAD in architecture:
            content |= labels.entries(cfg.num_classes, metadata.class_names)
        found = metadata.pixels and preprocessor.entries(metadata.pixels, cfg.image_size)
        return {CONFIG: content, **({preprocessor.FILE: found} if found else {})}

    def _section(self, sidecars: Entries) -> dict[str, Any] | None:
        config = sidecars.get(CONFIG)
        if not isinstance(config, dict) or config.get("model_type") not in self.model_types:
            return None
        section = self.model_types[config["model_type"]]
        if not section and isinstance(config.get("vision_config"), dict):
            return None  # of a larger model, whose tower older files call by the same name
        inner = config.get(section, {}) if section else config
        return inner if isinstance(inner, dict) else None

    def _check(self, told: Entries) -> None:
        for name, values in self.only.items():
            if (value := told.get(name, values[0])) not in values:
                said = " or ".join(map(repr, values))
                raise ConfigError(f"{CONFIG}: {name} = {value!r}, but a schema supports only {said}")


def oblong(fields: Mapping[str, Any]) -> Iterator[str]:
    """Of models whose code fits positions to any image but a square one."""
    for name in ("image_size", "patch_size"):
        height, width = fields[name]
        if height != width:
            yield f"{name} = {fields[name]}, and its positions are right for squares alone"


class _Numbers:
    """Every number, for `Dialect.can`: the field has to be given."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def __iter__(self) -> Iterator[str]:
        return iter(("a number",))


NUMBERS = _Numbers()
