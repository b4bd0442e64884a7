"""The list of checkpoints to convert: what was found, and what its reader may fill in."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, model_validator

from vit_config import ConfigError, MissingFileError, Preprocess, ViTConfig
from vit_config.base import Schema, Size

VERSION = 1
"""Of the manifest's form."""

Status = Literal["ready", "ask", "refused", "other", "broken"]
"""Whether a checkpoint can be converted; needs an answer first; is sound, but contradicts itself or
holds what no schema says; is sound and of another model; or cannot be read."""


class Found(Schema, frozen=True):
    """What a checkpoint says of itself."""

    container: str
    """The kind of file, as in "safetensors (3 shards)"."""
    dialect: str | None = None
    """None where several models lie in it."""
    why: str | None = None
    """How the dialect was recognised."""
    config: ViTConfig | None = None
    """The schema; None where something has to be stated first."""
    origins: dict[str, str] = Field(default={})
    """Where each field of the schema is from."""
    license: str | None = None
    """None if unknown."""
    preprocess: str = "unknown"
    """Where it says how pixels are prepared; ``unknown`` where it does not."""
    parameters: NonNegativeInt
    bytes: NonNegativeInt
    """Of all tensors."""


class Job(Schema, frozen=True):
    """One checkpoint. Everything from `set` on is for its reader to fill in."""

    path: str
    """A file or a folder, below the manifest's folder; "/" between its parts."""
    status: Status
    said: str | None = None
    """What has to be stated, or why it cannot be read."""
    found: Found | None = None
    """None where it cannot be read."""

    set: dict[str, Any] = Field(default={})
    """Fields of the schema that the file leaves open; null is an answer that is still missing."""
    override: dict[str, Any] = Field(default={})
    """Fields of the schema in which the file is wrong."""
    like: str | None = None
    """The preset that the model was built from, for what the file leaves open."""
    dialect: str | None = None
    """Its dialect, if it is not recognised by itself."""
    part: str | None = None
    """Which model to take where there are several."""
    preprocess: Preprocess | None = None
    """How pixels are prepared, if the file does not say it."""
    license: str | None = None
    """The licence of the weights, if the file does not say it."""
    dtype: Literal["float64", "float32", "float16", "bfloat16"] | None = None
    """Another type for all tensors."""
    image_size: Size | None = None
    """Another height and width of the images, in pixels."""
    num_classes: NonNegativeInt | None = None
    """0 takes the head off, another number puts a head of zeros on."""
    allow_nonfinite: bool = False
    """Let NaN and infinite values pass."""
    skip: bool = False
    """Leave it out."""

    @property
    def reading(self) -> dict[str, Any]:
        """How to read it: arguments of `parity.porting.checkpoint.read_checkpoint`."""
        return {
            "given": {name: value for name, value in self.set.items() if value is not None},
            "override": self.override,
            "like": self.like,
            "dialect": self.dialect,
            "part": self.part,
            "preprocess": self.preprocess,
            "license": self.license,
        }

    @property
    def changes(self) -> dict[str, Any]:
        """What to change: arguments of `parity.porting.conversion.convert`."""
        names = ("dtype", "image_size", "num_classes", "allow_nonfinite")
        return {name: getattr(self, name) for name in names}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts = PurePosixPath(self.path).parts
        if not self.path or "\0" in self.path or self.path.startswith("/") or ".." in parts:
            raise ValueError(f"path = {self.path!r}: expected a path below the manifest's folder")
        stated = {**self.set, **self.override}
        for name in stated.keys() - set(ViTConfig.fields()):
            ViTConfig(**{name: stated[name]})  # says which field was meant
        return self


class Manifest(Schema, frozen=True):
    """Every checkpoint of a folder."""

    version: Literal[1] = VERSION
    folder: str
    """Where the checkpoints are; if not absolute, seen from where the manifest lies."""
    checkpoints: Annotated[
        tuple[Job, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        often = Counter(job.path for job in self.checkpoints)
        if twice := [path for path, count in often.items() if count > 1]:
            raise ValueError(f"{', '.join(twice)}: listed more than once; keep one")
        return self

    def count(self, status: Status) -> int:
        """How many checkpoints are in that state."""
        return sum(job.status == status for job in self.checkpoints)

    def root(self, path: Path) -> Path:
        """The folder of the checkpoints, for a manifest that lies at `path`.

        Raises:
            MissingFileError: it is not there.
        """
        root = path.absolute().parent / self.folder
        if not root.is_dir():
            raise MissingFileError(f"{root}: no such folder, but {path} lists checkpoints in it")
        return root


def folder_for(folder: Path, manifest: Path | None) -> str:
    """How a manifest names a folder: from where it lies if the folder is below, so that both may move.

    Raises:
        ConfigError: the folder's name is not text.
    """
    whole = folder.absolute()
    near = manifest is not None and whole.is_relative_to(manifest.absolute().parent)
    text = os.path.relpath(whole, manifest.absolute().parent) if manifest and near else str(whole)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{folder!r}: a name that is not UTF-8; rename the folder") from None
    return text
