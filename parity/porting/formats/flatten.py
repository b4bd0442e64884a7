"""Flattening of nested containers to flat names: tensors in one dictionary, other values in another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.porting.formats.budget import Budget
from parity.porting.formats.inert import Inert, NumpyArray, NumpyType, Refused
from parity.porting.formats.torch_types import Storage, View
from vit_config.errors import WeightsError
from vit_config.files.stored import Stored

_DEEPEST = 100
_MOST_ENTRIES = 500_000
_MOST_CHARACTERS = 2**25
_LONGEST_NAME = 4096
_TEXT = 64
"""Bytes of a text object in addition to its letters."""


def check_names(names: Iterable[str]) -> None:
    """Refuse names that are too long or too many. WeightsError: they are."""
    characters = 0
    for entries, name in enumerate(names, 1):
        characters += len(name)
        _check_name(name, entries, characters)


def _check_name(name: str, entries: int, characters: int) -> None:
    if entries > _MOST_ENTRIES or characters > _MOST_CHARACTERS:
        raise WeightsError(
            f"more than {_MOST_ENTRIES} entries, or {_MOST_CHARACTERS} letters in their names; no"
            " checkpoint has so many"
        )
    if len(name) > _LONGEST_NAME:
        raise WeightsError(
            f"{name[:80]}...: a name of {len(name)} characters; no checkpoint has such names"
        )


class Flat:
    """Collects a tree's leaves by their joined names.

    Args:
        separator: text that joins the keys of nested containers.
        budget: budget of the file.
    """

    def __init__(self, separator: str, budget: Budget):
        self.tensors: dict[str, Stored] = {}
        self.objects: dict[str, Any] = {}
        self._separator = separator
        self._budget = budget
        self._path: set[int] = set()
        self._entries = 0
        self._characters = 0

    def add(self, name: str, value: Any) -> None:
        """Add a value, or every value in a container.

        Raises:
            WeightsError: two values have the same name, a tensor has no plain array, or containers
                contain themselves, are more than 100 deep or have more than 500 000 entries.
        """
        self._entries += 1
        self._characters += len(name)
        _check_name(name, self._entries, self._characters)
        if isinstance(value, NumpyArray):
            value = self._text_or_tensor(value)
        if isinstance(value, Refused):
            raise WeightsError(f"{name or 'the object'} is {value.reason}")
        if (tensor := as_tensor(value)) is not None:
            self._put(self.tensors, name or "tensor", self._counted(tensor))
        elif isinstance(value, Inert):
            self._add_inert(name, value)
        elif (children := _children(value)) is not None:
            if id(value) in self._path:
                raise WeightsError(f"{name} contains itself; no checkpoint needs that")
            self._add_all(name, value, children)
        else:
            self._put(self.objects, name, _plain(value))

    def _counted(self, tensor: Stored) -> Stored:
        """Return the tensor; the first read counts its values against the budget."""
        left = [tensor.nbytes]

        def load() -> np.ndarray:
            self._budget.values(left.pop() if left else 0)
            return tensor.load()

        return replace(tensor, load=load)

    def _text_or_tensor(self, value: NumpyArray) -> Any:
        if value.array is None or value.array.dtype.kind not in "SU":
            return None if value.array is None else Stored.of(value.array)
        self._budget.objects(value.array.nbytes + _TEXT * value.array.size)
        return value.array.tolist()

    def _add_inert(self, name: str, value: Inert) -> None:
        if id(value) in self._path:  # records may refer to their parent
            return
        attributes = value.attributes()
        if attributes is None:
            self._put(self.objects, name, str(value))
        else:
            self._add_all(name, value, attributes)

    def _add_all(self, name: str, owner: Any, children: dict) -> None:
        if len(self._path) >= _DEEPEST:
            raise WeightsError(f"{name[:200]} ...: nested more than {_DEEPEST} deep; no checkpoint is")
        self._path.add(id(owner))
        for key, child in children.items():
            self.add(self._joined(name, _text_of(key)), child)
        self._path.remove(id(owner))

    def _joined(self, name: str, key: str) -> str:
        return f"{name}{self._separator}{key}" if name and key else name or key

    def _put(self, target: dict[str, Any], name: str, value: Any) -> None:
        name.encode()  # UnicodeEncodeError if no file could hold this name
        if name in self.tensors or name in self.objects:
            raise WeightsError(f"two entries are called {name}; rename one of them")
        target[name] = value


def nested(flat: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Rebuild a tree of dictionaries from flat names."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(separator)
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[leaf] = value
    return tree


def as_tensor(value: Any) -> Stored | None:
    """Return a leaf of a reader's tree as a tensor; None if it is not one."""
    if isinstance(value, Stored):
        return value
    if isinstance(value, View):
        return value.stored()
    if isinstance(value, Storage):
        return value.whole().stored()
    return None


def _children(value: Any) -> dict | None:
    """Return the entries of a container; None for a leaf. An empty container is a leaf."""
    if isinstance(value, dict):
        return value or None
    if isinstance(value, list | tuple):
        return dict(enumerate(value)) or None
    if isinstance(value, set | frozenset):
        return dict(enumerate(sorted(value, key=_text_of))) or None
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, NumpyType):
        return str(value.dtype)
    if isinstance(value, int | float | complex | str | bytes | None):
        return value
    if isinstance(value, dict | list | tuple | set | frozenset):  # empty
        return {} if isinstance(value, dict) else []
    return str(value)


def _text_of(key: Any) -> str:
    return key if isinstance(key, str) else str(key)
