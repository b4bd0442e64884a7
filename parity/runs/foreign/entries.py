"""Access to a file's entries - numbers, words and tensors - by flat name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.porting.formats import Container
from parity.porting.formats.sniff import read_file

_ENUM = re.compile(r"[\w.]+\('([^']*)'\)")


class Entries:
    """Entries of a file, or those under one prefix by the rest of their names."""

    def __init__(self, objects: Mapping[str, Any]):
        self._objects = dict(objects)

    @classmethod
    def of(cls, container: Container) -> Entries:
        """Return all entries of a file; `get` gives a tensor of one number as that number."""
        return cls({**container.objects, **container.tensors})

    @classmethod
    def load(cls, path: Path) -> Entries:
        """Read all entries of the file at `path`, without files beside it; empty if there is no file.

        Raises:
            WeightsError: the file is damaged, or holds something that no checkpoint needs.
        """
        return cls.of(read_file(path)) if path.is_file() else cls({})

    def __bool__(self) -> bool:
        return bool(self._objects)

    def __contains__(self, name: str) -> bool:
        return name in self._objects or bool(self.under(name))

    def items(self) -> list[tuple[str, Any]]:
        """Return every entry; tensors are not read."""
        return list(self._objects.items())

    def under(self, prefix: str) -> Entries:
        """Return the entries inside a dictionary, a list or a record."""
        start = f"{prefix}."
        return Entries(
            {name.removeprefix(start): value for name, value in self._objects.items()
             if name.startswith(start)}
        )  # fmt: skip

    def get(self, name: str, default: Any = None) -> Any:
        """Return one entry: a number, a word, or a list of these; for an enumeration's member its value.

        An entry that is None gives None; `default` is for a missing entry.
        """
        if name in self._objects:
            return plain(self._objects[name])
        inside = self.under(name)
        return inside.listed() if inside and "0" in inside else default

    def listed(self) -> list[Any]:
        """Return the entries of a list."""
        values = []
        while (key := str(len(values))) in self._objects:
            values.append(plain(self._objects[key]))
        return values


def plain(value: Any) -> Any:
    """Return a value as a number or a word: a tensor of one number as that number."""
    if hasattr(value, "load"):
        return value.load().item() if value.shape in ((), (1,)) else value
    if isinstance(value, str) and (match := _ENUM.fullmatch(value)):
        return match[1]
    return value
