"""What a file holds beside its weights, by flat name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.porting.formats import Container
from parity.porting.formats.sniff import read_file

_ENUM = re.compile(r"[\w.]+\('([^']*)'\)")


class Entries:
    """The numbers, words and tensors of a file whose names begin alike, by the rest of their names."""

    def __init__(self, objects: Mapping[str, Any]):
        self._objects = dict(objects)

    @classmethod
    def of(cls, container: Container) -> Entries:
        """All that is in a file; a tensor without axes is its number when it is asked for."""
        return cls({**container.objects, **container.tensors})

    @classmethod
    def load(cls, path: Path) -> Entries:
        """All that is in the file at `path`, without what lies beside it; nothing where there is none.

        Raises:
            WeightsError: damaged, or with something in it that has no business in a checkpoint.
        """
        return cls.of(read_file(path)) if path.is_file() else cls({})

    def __bool__(self) -> bool:
        return bool(self._objects)

    def __contains__(self, name: str) -> bool:
        return name in self._objects or bool(self.under(name))

    def items(self) -> list[tuple[str, Any]]:
        """Every entry; tensors unread."""
        return list(self._objects.items())

    def under(self, prefix: str) -> Entries:
        """The entries of a dictionary, a list or a record."""
        start = f"{prefix}."
        return Entries(
            {name.removeprefix(start): value for name, value in self._objects.items()
             if name.startswith(start)}
        )  # fmt: skip

    def get(self, name: str, default: Any = None) -> Any:
        """One entry: a number, a word, a list of such; of a member of an enumeration its value.

        Where the file says None, so does this; `default` is for what is not there at all.
        """
        if name in self._objects:
            return plain(self._objects[name])
        inside = self.under(name)
        return inside.listed() if inside and "0" in inside else default

    def listed(self) -> list[Any]:
        """The entries of a list."""
        found = []
        while (key := str(len(found))) in self._objects:
            found.append(plain(self._objects[key]))
        return found


def plain(value: Any) -> Any:
    """A value as a number or a word: a tensor of one number is that number."""
    if hasattr(value, "load"):
        return value.load().item() if value.shape in ((), (1,)) else value
    if isinstance(value, str) and (match := _ENUM.fullmatch(value)):
        return match[1]
    return value
