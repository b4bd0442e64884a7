"""Refusal of a report that would replace what the same command reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_config import ConfigError

WRITTEN = (
    "json", "csv", "html", "sarif", "repro", "picture", "svg", "plot", "features", "names", "table",
)  # fmt: skip
"""Fields of commands that are files to write."""


def refuse_lost(arguments: Any, written: tuple[str, ...] = WRITTEN) -> None:
    """Refuse a file to write that is one of those that are read; of FILE.py:FUNCTION, the file.

    Raises:
        ConfigError: with the flag.
    """
    every = list(_flat(arguments))
    read = {
        Path(path).resolve()
        for name, value in every
        if name not in written
        for word in (value if isinstance(value, tuple) else (value,))
        if isinstance(word, str | Path)
        for path in (str(word), str(word).rpartition(":")[0])
        if path and "\0" not in path
    }
    for name, value in every:
        if name in written and isinstance(value, Path) and value.is_file() and value.resolve() in read:
            raise ConfigError(f"--{name} {value}: is what is read; give another path")


def _flat(arguments: Any) -> Iterator[tuple[str, Any]]:
    """Yield every field with its value, also those of inner groups; a schema has no files."""
    for name in getattr(arguments, "__dataclass_fields__", ()):
        value = getattr(arguments, name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value)
        else:
            yield name, value
