"""Provenance of weights: every hop from file to file, kept in the header of written files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.formats.base import Container
from vit_config import WeightsError
from vit_config.files.foreign import parse_json

LIBRARIES = ("vit-parity", "numpy", "safetensors")
"""Packages whose versions can affect the bytes written."""


class Hop(NamedTuple):
    """One file that the weights came through."""

    source: str
    """Name of the file, without its folders."""
    digest: str
    """SHA-256 of the file, see `digest_of`."""
    container: str
    dialect: str
    license: str | None
    """Licence of the weights; None if unknown."""
    done: tuple[str, ...]
    """Changes between this file and the next, a sentence each."""
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**self._asdict(), "done": list(self.done)}


def versions() -> dict[str, str]:
    """Return the installed versions of `LIBRARIES`."""
    every = {name: _version(name) for name in LIBRARIES}
    return {name: each for name, each in every.items() if each is not None}


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return None


def digest_of(files: Iterable[Path]) -> str:
    """Compute the SHA-256 of a file; of a folder, over its files' names and digests; of several paths,
    over their digests."""
    digests = [_digest_of_one(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def digest_of_source(container: Container) -> str:
    """Compute the SHA-256 of a checkpoint's files; of a model in memory, that of its tensors by name."""
    if container.files:
        return digest_of(container.files)
    whole = hashlib.sha256()
    for name, stored in sorted(container.tensors.items()):
        whole.update(f"{name}\0{stored.dtype}{stored.shape}\n".encode())
        whole.update(np.ascontiguousarray(stored.load()).view(np.uint8).data)
    return whole.hexdigest()


def _digest_of_one(path: Path) -> str:
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file())
        lines = [f"{each.relative_to(path).as_posix()}\0{_digest_of_one(each)}\n" for each in inside]
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(hops: Iterable[Hop]) -> str:
    """Return hops as the header keeps them: JSON, the oldest first."""
    return json.dumps([hop.to_dict() for hop in hops])


def from_header(metadata: Mapping[str, str], where: str) -> tuple[Hop, ...]:
    """Read the hops from a file's header; none if it has no provenance.

    Raises:
        WeightsError: the entry is not a list of hops.
    """
    try:
        hops = parse_json(metadata.get("vit.provenance", "[]"))
        return tuple(Hop(**{**hop, "done": tuple(hop["done"])}) for hop in hops)
    except (ValueError, TypeError, KeyError):
        raise WeightsError(f"{where}: its vit.provenance is not a list of hops") from None
