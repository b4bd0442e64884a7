"""A model's metadata: preprocessing, class names and licence, written wherever its weights go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from vit_config import ConfigError, Preprocess, Schema, WeightsError
from vit_config.base import NameTuple
from vit_config.files.foreign import parse_json

PREPROCESS, CLASS_NAMES = "vit.preprocess", "vit.class_names"
"""Keys in a file's header."""


class Metadata(Schema, frozen=True):
    """Preprocessing, class names and licence of a model; each is None if unknown.

    A `Preprocess` in a file or from a user may hold all three, but cannot hold class names without
    preprocessing. Here each is independent.
    """

    pixels: Preprocess | None = None
    """The preprocessing, without class names and licence."""
    class_names: NameTuple | None = None
    """Class names in the order of the logits."""
    license: str | None = None
    """Licence of the weights."""

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.pixels is not None and (self.pixels.class_names or self.pixels.license):
            raise ValueError("pixels has class names or a licence too; build it with Metadata.of")
        return self

    @classmethod
    def of(cls, preprocess: Preprocess | None) -> Metadata:
        """Split a `Preprocess` into pixels, class names and licence."""
        if preprocess is None:
            return cls()
        pixels = preprocess.replace(class_names=None, license=None)
        return cls(pixels=pixels, class_names=preprocess.class_names, license=preprocess.license)

    @property
    def preprocess(self) -> Preprocess | None:
        """The three as one `Preprocess`; None if preprocessing is unknown."""
        if self.pixels is None:
            return None
        return self.pixels.replace(class_names=self.class_names, license=self.license)

    def completed(self, other: Metadata) -> Metadata:
        """Return a copy whose unknown fields are taken from `other`."""
        mine = {name: getattr(self, name) for name in self.fields()}
        return other.replace(**{name: value for name, value in mine.items() if value is not None})

    def check_classes(self, num_classes: int, advice: str) -> None:
        """Refuse class names that are not as many as a head's classes; a model without a head keeps any.

        Args:
            advice: how the caller is given the right ones.

        Raises:
            WeightsError: with both numbers.
        """
        if self.class_names is not None and num_classes not in (0, len(self.class_names)):
            raise WeightsError(
                f"{len(self.class_names)} class names, but num_classes = {num_classes}; {advice}"
            )

    def to_header(self) -> dict[str, str]:
        """Return entries for a file's header. A licence without pixels is in the provenance only."""
        if (preprocess := self.preprocess) is not None:
            return {PREPROCESS: preprocess.to_json()}
        names = {CLASS_NAMES: json.dumps(self.class_names)} if self.class_names is not None else {}
        return {PREPROCESS: "null", **names}

    @classmethod
    def from_header(cls, metadata: Mapping[str, str], *, where: str) -> Metadata | None:
        """Read the metadata from a file's header; None if the header is not this project's.

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
