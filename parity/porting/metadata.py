"""What is told of a model beside its function, and goes wherever its weights go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from vit_config import ConfigError, Preprocess, Schema
from vit_config.base import NameTuple
from vit_config.files.foreign import parse_json

PREPROCESS, CLASS_NAMES = "vit.preprocess", "vit.class_names"
"""Entries of a header."""


class Metadata(Schema, frozen=True):
    """How pixels are prepared, what the classes are called, and the licence; None if unknown.

    A `Preprocess` in a file or from a user may hold all three, but it cannot say what classes are called
    without saying how pixels are prepared. Here each stands for itself.
    """

    pixels: Preprocess | None = None
    """Without names and licence."""
    class_names: NameTuple | None = None
    """In the order of the logits."""
    license: str | None = None
    """Of the weights."""

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.pixels is not None and (self.pixels.class_names or self.pixels.license):
            raise ValueError("pixels has class names or a licence too; build it with Metadata.of")
        return self

    @classmethod
    def of(cls, preprocess: Preprocess | None) -> Metadata:
        """Everything that a `Preprocess` says."""
        if preprocess is None:
            return cls()
        pixels = preprocess.replace(class_names=None, license=None)
        return cls(pixels=pixels, class_names=preprocess.class_names, license=preprocess.license)

    @property
    def preprocess(self) -> Preprocess | None:
        """All of it as one `Preprocess`; None if preprocessing is unknown."""
        if self.pixels is None:
            return None
        return self.pixels.replace(class_names=self.class_names, license=self.license)

    def completed(self, other: Metadata) -> Metadata:
        """What this leaves open is the other's."""
        mine = {name: getattr(self, name) for name in self.fields()}
        return other.replace(**{name: value for name, value in mine.items() if value is not None})

    def to_header(self) -> dict[str, str]:
        """Entries of a header. A licence without pixels is in its provenance."""
        if (preprocess := self.preprocess) is not None:
            return {PREPROCESS: preprocess.to_json()}
        names = {CLASS_NAMES: json.dumps(self.class_names)} if self.class_names is not None else {}
        return {PREPROCESS: "null", **names}

    @classmethod
    def from_header(cls, metadata: Mapping[str, str], *, where: str) -> Metadata | None:
        """What a header says; None of a header that is not this project's.

        Raises:
            ConfigError: an entry that is not valid.
        """
        if PREPROCESS not in metadata:
            return None
        if metadata[PREPROCESS] != "null":
            return cls.of(Preprocess.from_json(metadata[PREPROCESS], where=f"{where}: {PREPROCESS}"))
        try:
            return cls(class_names=parse_json(metadata.get(CLASS_NAMES, "null")))
        except ConfigError as error:
            raise ConfigError(f"{where}: {CLASS_NAMES}: {error}") from None
        except ValueError:
            raise ConfigError(f"{where}: {CLASS_NAMES} is not valid JSON") from None
