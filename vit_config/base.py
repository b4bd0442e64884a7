"""The base of every schema here: frozen, strict, JSON in and out, errors on one line."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vit_config.errors import ConfigError, MissingFileError
from vit_config.field_words import meant, reason_without
from vit_config.files.foreign import (
    LONGEST_JSON,
    LONGEST_TOML,
    parse_json,
    parse_toml,
    read_text,
    without_repeats,
)


def as_pair(value: Any) -> Any:
    """Turn one integer, or a JSON list of two, into an (h, w) tuple; leave the rest to pydantic."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value


LARGEST = 2**20
"""Largest width, length or count of a model or a batch; what a file says beyond it is no model's."""
MOST_PIXELS = 2**25
"""Pixels that a model's image may have, one that is resized to it, and even the smallest file. Unpacked,
opened and converted they take 0.6 GB."""
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST)]
"""A width, a length or a count."""

Size = Annotated[tuple[PositiveInt, PositiveInt], BeforeValidator(as_pair)]
"""(height, width) in pixels; one integer means a square."""

Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Takes a JSON list for a tuple."""

FloatTuple = Annotated[tuple[float, ...], Listed]
"""One float per channel."""

IntTuple = Annotated[tuple[PositiveInt, ...], Listed]
"""One positive integer each."""

NameTuple = Annotated[tuple[str, ...], Listed]
"""Any number of names."""


def as_json(value: object) -> str:
    """Write a field's value as JSON does, but for a tuple."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else str(value)


class Schema(BaseModel, frozen=True):
    """A frozen pydantic model: unknown fields and wrong types are a `ConfigError` of one line."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
    )
    later: ClassVar[tuple[str, ...]] = ()
    """Fields that earlier files do not have: JSON has them only where they are not at their default, so
    that files stay what they were."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(_one_line(type(self), error)) from None

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self.fields()}, **changes})

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Return the names of the fields, in order."""
        return tuple(cls.model_fields)

    def to_json(self, *, indent: int | None = None) -> str:
        """Write the schema as JSON text; `from_json` reads back an equal object."""
        of = type(self).model_fields
        usual = {name for name in self.later if getattr(self, name) == of[name].default}
        return self.model_dump_json(indent=indent, exclude=usual)

    @classmethod
    def from_json(cls, text: str, *, where: str = "JSON text") -> Self:
        """Read a schema from JSON text.

        Raises:
            ConfigError: the text is not JSON, or has an unknown field, a wrong type or a contradiction.
        """
        try:
            fields = parse_json(text, pairs=without_repeats)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{where}: not valid JSON at line {error.lineno}: {error.msg}") from None
        except ValueError as error:
            raise ConfigError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ConfigError(f"{where}: expected a JSON object, found {type(fields).__name__}")
        try:
            return cls(**fields)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a schema from a JSON file, or from a TOML file, whose name ends in ``.toml``.

        Raises:
            MissingFileError: there is no such file.
            ConfigError: see `from_json`.
        """
        path = Path(path)
        if not path.is_file():
            there = [each.name for each in path.parent.glob("*") if each.suffix in (".json", ".toml")]
            near = get_close_matches(path.name, there, n=1)
            hint = "give the path of a JSON or TOML config"
            hint = f"did you mean {path.with_name(near[0])}?" if near else hint
            what = "is a folder" if path.is_dir() else "no such file"
            raise MissingFileError(f"{path}: {what}; {hint}")
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        try:
            text = read_text(path, LONGEST_TOML if kind == "TOML" else LONGEST_JSON)
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not valid {kind}: it is not text") from None
        except ValueError as error:
            raise ConfigError(f"{path}: not valid {kind}: {error}") from None
        text = text.removeprefix("\ufeff")  # the mark of UTF-8 by which some editors begin a file
        return (
            cls.from_toml(text, where=str(path))
            if kind == "TOML"
            else cls.from_json(text, where=str(path))
        )

    @classmethod
    def from_toml(cls, text: str, *, where: str = "TOML text") -> Self:
        """Read a schema from TOML text, which has comments but no null: leave such a field out.

        Raises:
            ConfigError: the text is not TOML, or has an unknown field, a wrong type or a contradiction.
        """
        try:
            fields = parse_toml(text)
        except ValueError as error:
            raise ConfigError(f"{where}: not valid TOML: {error}") from None
        try:
            return cls(**fields)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


_INTERNAL = re.compile(r"function-.*|\w+\[.*\]")
"""pydantic's names of its own steps and of the members of a union, among those of fields."""
_MOST_SAID = 20
"""Complaints about one schema that are said."""


def _one_line(schema: type[Schema], error: ValidationError) -> str:
    """Join every complaint of pydantic's report into one line that names the fields."""
    said = [_complaint(schema, item) for item in error.errors()[:_MOST_SAID]]
    more = error.error_count() - len(said)
    fields = "; the fields are " + ", ".join(schema.fields())
    last = max((i for i, each in enumerate(said) if each.endswith(fields)), default=-1)
    said = [each if i == last else each.removesuffix(fields) for i, each in enumerate(said)]
    return "; ".join([*said, f"and {more} more"] if more else said)


def _complaint(schema: type[Schema], item: Any) -> str:
    path = [str(part) for part in item["loc"] if not _INTERNAL.fullmatch(str(part))]
    where = ".".join([schema.__name__, *path])
    if item["type"] == "extra_forbidden":
        word, fields = path[-1], schema.fields()
        near, why = meant(word, fields), reason_without([word], ())
        hint = why or (f"did you mean {near!r}?" if near else "the fields are " + ", ".join(fields))
        return f"{schema.__name__} has no field {path[-1]!r}; {hint}"
    if item["type"] == "missing":  # its input is all that stands beside it
        return f"{where} is not stated"
    if item["type"] == "value_error":  # raised by our own validators: already complete
        message = str(item["ctx"]["error"])
        return message if not path else f"{where}: {message}"
    return f"{where} = {item['input']!r}: {item['msg'][0].lower()}{item['msg'][1:]}"
