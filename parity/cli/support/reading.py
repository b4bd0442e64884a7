"""The flags by which every command that reads a checkpoint is told about it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vit_config import ConfigError
from vit_config.files.foreign import parse_json


def shown_as(metavar: str, default: str = "", *, name: str | None = None) -> Any:
    """Make the help of a flag that has no default, or a computed one."""
    hint = f"(default: {default})" if default else ""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, name=name)


DATA_DIR = shown_as("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")
"""The help of the flag that `data_folder` takes."""


def data_folder(given: Path | None) -> Path:
    """Return the folder of prepared data sets: the given one, or the usual one."""
    folder = given or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return folder.expanduser().absolute()


Exif = Literal["ignore", "apply"]
EXIF = shown_as("{ignore,apply}", "as the weights say, else ignore")
"""What `Preprocess.exif` may be, and the help of the flag that replaces it."""


@dataclass(frozen=True)
class ReadingFlags:
    """Facts that the file leaves open."""

    fields: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...", name="set")] = ()
    """Fields of the schema that the file leaves open, such as num_heads=12 norm_eps=1e-6 act=gelu;
    values are JSON, a bare word, or HxW for a size; text.act=gelu is of the text tower beside it. A
    contradiction of the file is refused."""
    override: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...")] = ()
    """Fields of the schema in which the file is wrong, written as for --set; the provenance records
    them. Tensors cannot be overridden."""
    like: Annotated[str | None, shown_as("PRESET")] = None
    """Preset that the model was built from; it gives every field that the file leaves open."""
    dialect: Annotated[str | None, shown_as("NAME")] = None
    """Dialect of the file, if it is not recognised by itself; `parity list --dialects` shows all."""
    part: Annotated[str | None, shown_as("NAME")] = None
    """Model to take from a file that holds several, such as state_dict_ema."""
    adapter: Annotated[Path | None, shown_as("DIR")] = None
    """Folder of a LoRA that PEFT saved, to merge into the weights."""
    preprocess: Annotated[Path | None, shown_as("FILE")] = None
    """JSON or TOML file of the preprocessing: mean, std, interpolation, crop_fraction, crop_mode; also
    class_names."""
    license: Annotated[str | None, shown_as("NAME")] = None
    """Licence of the weights, if the file does not state it."""

    def options(self) -> dict[str, Any]:
        """Return the arguments of `parity.porting.reading.checkpoint.read_checkpoint`.

        Raises:
            ConfigError: a field or value that is not valid.
            MissingFileError: the file with the preprocessing is not there.
        """
        from vit_config import Preprocess

        return {
            "given": parse_fields(self.fields),
            "override": parse_fields(self.override, "--override"),
            "like": self.like,
            "dialect": self.dialect,
            "part": self.part,
            "adapter": self.adapter,
            "preprocess": Preprocess.load(self.preprocess) if self.preprocess else None,
            "license": self.license,
        }


def parse_fields(texts: Sequence[str], flag: str = "--set") -> dict[str, Any]:
    """Parse texts FIELD=VALUE as fields of a schema.

    Raises:
        ConfigError: not of that form, or one given twice.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{flag} {text}: expected FIELD=VALUE, such as num_heads=12")
        if name in fields:
            raise ConfigError(f"{flag} {text}: {name} is given twice; keep one")
        try:
            fields[name] = parse_json(value)
        except ValueError:
            fields[name] = parse_size(value, f"{flag} {name}") if _is_size(value) else value
    return fields


def _is_size(text: str) -> bool:
    return re.fullmatch(r"\d+x\d+", text) is not None


MAX_SIDE = 2**13
"""Most pixels of a side; beyond it the bytes of attention weights no longer fit in 64 bits."""


def parse_size(text: str | None, flag: str = "--image-size") -> tuple[int, int] | None:
    """Parse height and width from "HxW", or from one number for both; None for None.

    Raises:
        ConfigError: another text, or a side of more than `MAX_SIDE` pixels.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9}))?", text)
    size = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if 0 in size:
        raise ConfigError(f"{flag} {text}: expected height and width in pixels, such as 224x224")
    if max(size) > MAX_SIDE:
        raise ConfigError(f"{flag} {text}: a side has at most {MAX_SIDE} pixels here")
    return size
