"""The manifest: a list of checkpoints to convert, with the facts found and fields for the user."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, model_validator

from vit_config import ConfigError, MissingFileError, Preprocess, ViTConfig
from vit_config.base import Schema, Size

VERSION = 1
"""Version of the manifest's format."""
MOST_ROWS = 100_000
"""Most checkpoints of a manifest."""

Status = Literal["ready", "ask", "refused", "other", "broken"]
"""State of a checkpoint: it can be converted; needs an answer first; can be read, but contradicts itself
or no schema can express it; is of another kind of model; or cannot be read."""


class CheckpointFacts(Schema, frozen=True):
    """Facts that were found in a checkpoint."""

    container: str
    """Kind of file, such as "safetensors (3 shards)"."""
    dialect: str | None = None
    """Name of the dialect; None if the file holds several models."""
    why: str | None = None
    """How the dialect was recognised."""
    config: ViTConfig | None = None
    """The schema; None if fields have to be stated first."""
    origins: dict[str, str] = Field(default={})
    """Source of each field of the schema, in words."""
    license: str | None = None
    """Licence of the weights; None if unknown."""
    preprocess: str = "unknown"
    """Source of the preprocessing, in words; ``unknown`` if there is none."""
    parameters: NonNegativeInt
    bytes: NonNegativeInt
    """Size of all tensors in bytes."""


class FleetJob(Schema, frozen=True):
    """One checkpoint. The fields from `out` on are for the user to fill in."""

    path: str
    """A file or a folder, below the manifest's folder; "/" between its parts."""
    status: Status
    said: str | None = None
    """The question to answer, or why the checkpoint cannot be converted."""
    found: CheckpointFacts | None = None
    """Facts that were found, for the statuses ``ready`` and ``ask``; else None."""

    out: str | None = None
    """Name of what is written, in the folder of --out and without a file's suffix; each is its own. None
    makes one of `path`."""
    set: dict[str, Any] = Field(default={})
    """Fields of the schema that the file leaves open; null stands for an answer still missing."""
    override: dict[str, Any] = Field(default={})
    """Fields of the schema that replace wrong values in the file."""
    like: str | None = None
    """The preset that the model was built from, for fields that the file leaves open."""
    dialect: str | None = None
    """The checkpoint's dialect; None recognises it."""
    part: str | None = None
    """The model to take from a file that has several."""
    preprocess: Preprocess | None = None
    """The preprocessing, if the file does not state it."""
    license: str | None = None
    """The licence of the weights, if the file does not state it."""
    dtype: Literal["float64", "float32", "float16", "bfloat16"] | None = None
    """New type of all tensors; None keeps them."""
    image_size: Size | None = None
    """New height and width of the images, in pixels; None keeps them."""
    num_classes: NonNegativeInt | None = None
    """0 removes the head, another number puts a head of zeros on; None keeps it."""
    allow_nonfinite: bool = False
    """Allow NaN and infinite values."""
    skip: bool = False
    """Leave the checkpoint out."""

    @property
    def reading(self) -> dict[str, Any]:
        """Arguments of `parity.porting.reading.checkpoint.read_checkpoint`."""
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
        """Arguments of `parity.porting.writing.conversion.convert` for the changes to make."""
        names = ("dtype", "image_size", "num_classes", "allow_nonfinite")
        return {name: getattr(self, name) for name in names}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts = PurePosixPath(self.path).parts
        if not self.path or "\0" in self.path or self.path.startswith("/") or ".." in parts:
            raise ValueError(f"path = {self.path!r}: expected a path below the manifest's folder")
        if self.out is not None and (
            self.out.startswith(".") or PurePosixPath(self.out).parts != (self.out,)
        ):
            raise ValueError(f"out = {self.out!r}: expected a plain name, without folders")
        stated = {**self.set, **self.override}
        for name in stated.keys() - set(ViTConfig.fields()):
            ViTConfig(**{name: stated[name]})  # raises with a suggestion of the field that was meant
        return self


def _rows(value: Any) -> Any:
    """Take a JSON list for a tuple, within bounds."""
    if not isinstance(value, list):
        return value
    if len(value) > MOST_ROWS:
        raise ValueError(f"{len(value)} checkpoints, more than {MOST_ROWS}; scan smaller folders")
    return tuple(value)


class FleetManifest(Schema, frozen=True):
    """A list of all checkpoints in a folder."""

    version: Literal[1] = VERSION
    folder: str
    """The folder of the checkpoints; a relative path starts at the manifest's own folder."""
    checkpoints: Annotated[
        tuple[FleetJob, ...],
        BeforeValidator(_rows),
    ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        often = Counter(job.path for job in self.checkpoints)
        if twice := [path for path, count in often.items() if count > 1]:
            raise ValueError(f"{', '.join(twice)}: listed more than once; keep one")
        return self

    def count(self, status: Status) -> int:
        """Return the number of checkpoints with this status."""
        return sum(job.status == status for job in self.checkpoints)

    def root(self, path: Path) -> Path:
        """Return the folder of the checkpoints, given the manifest's own path.

        Raises:
            MissingFileError: there is no such folder.
        """
        root = path.absolute().parent / self.folder
        if not root.is_dir():
            raise MissingFileError(f"{root}: no such folder, but {path} lists checkpoints in it")
        return root


def folder_for(folder: Path, manifest: Path | None) -> str:
    """Return the path of a folder for a manifest: relative if the folder is below the manifest's.

    A relative path allows moving both together.

    Raises:
        ConfigError: the folder's name is not UTF-8.
    """
    whole = folder.absolute()
    near = manifest is not None and whole.is_relative_to(manifest.absolute().parent)
    text = os.path.relpath(whole, manifest.absolute().parent) if manifest and near else str(whole)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{folder!r}: a name that is not UTF-8; rename the folder") from None
    return text
