"""Where weights come from: every hop from file to file, kept in the header of what is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from vit_config import WeightsError
from vit_config.files.foreign import parse_json

LIBRARIES = ("vit-parity", "numpy", "safetensors")
"""What has a say in the bytes that are written."""


class Hop(NamedTuple):
    """One file that the weights came through."""

    source: str
    """Its name, without the folders it lay in."""
    digest: str
    """SHA-256 of its bytes; of several files, of their digests."""
    container: str
    dialect: str
    license: str | None
    """Under which licence the weights are, if the file said so."""
    done: tuple[str, ...]
    """What was changed on the way out of it, a sentence each."""
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**self._asdict(), "done": list(self.done)}


def versions() -> dict[str, str]:
    """The versions of the installed libraries that write."""
    found = {name: _version(name) for name in LIBRARIES}
    return {name: each for name, each in found.items() if each is not None}


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return None


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 of a file; of a folder, of names and digests in it; of several, of the digests of all."""
    digests = [_digest_of_one(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _digest_of_one(path: Path) -> str:
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file())
        lines = [f"{each.relative_to(path).as_posix()}\0{_digest_of_one(each)}\n" for each in inside]
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(hops: Iterable[Hop]) -> str:
    """Hops as the header keeps them, the oldest first."""
    return json.dumps([hop.to_dict() for hop in hops])


def from_header(metadata: Mapping[str, str], where: str) -> tuple[Hop, ...]:
    """The hops that a header keeps; none where it keeps none.

    Raises:
        WeightsError: it keeps something else.
    """
    try:
        hops = parse_json(metadata.get("vit.provenance", "[]"))
        return tuple(Hop(**{**hop, "done": tuple(hop["done"])}) for hop in hops)
    except (ValueError, TypeError, KeyError):
        raise WeightsError(f"{where}: its vit.provenance is not a list of hops") from None
