"""The seal of a safetensors file, which detects damage to it.

A sealed file has in its metadata ``vit.format`` (the version), ``vit.digests`` (JSON, a digest of each
tensor's type, shape and bytes) and ``vit.seal`` (SHA-256 over every other ``vit.`` entry). Digests are
XXH3 of 128 bits (https://github.com/Cyan4973/xxHash); in format 2 SHA-256, which takes ten times longer.
A seal is for accidents, for which both suffice; whoever forges a file can seal it again with either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from vit_config.errors import WeightsError
from vit_config.files.foreign import parse_json
from vit_config.files.safetensors_header import FileHeader, described, read_entry
from vit_config.files.stored import Stored, guarded, type_name

FORMAT = "3"
"""The format that is written."""


class Hasher(Protocol):
    """A digest that is being computed."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""
        ...


_HASHERS: dict[str, Callable[[bytes], Hasher]] = {"2": hashlib.sha256, "3": xxhash.xxh3_128}
"""Function that starts a digest, by format."""


class Seal(NamedTuple):
    """The digests of a sealed file's tensors, with their format."""

    format: str
    digests: dict[str, str]
    """Digest of each tensor, in hexadecimal."""

    def fits(self, name: str, array: np.ndarray) -> bool:
        """Return whether a tensor has its digest."""
        hasher = hasher_of(array.shape, array.dtype, self.format)
        hasher.update(array_bytes(array))
        return hasher.hexdigest() == self.digests[name]


def array_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order, copied only if it lies in another order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def is_sealed(header: FileHeader) -> bool:
    """Return whether a file claims to carry digests; `check_seal` checks the claim."""
    return any(key.startswith("vit.") for key in header.metadata)


def check_seal(path: Path, header: FileHeader) -> Seal:
    """Check and return the digests of a sealed file.

    Raises:
        WeightsError: the file is of another version, has no seal, or its header was changed after
            writing.
    """
    metadata = header.metadata
    version = metadata.get("vit.format", FORMAT)
    if version not in _HASHERS:
        raise WeightsError(
            f"{path}: format {version}, this version reads {' and '.join(_HASHERS)};"
            " use the version of the package that wrote it"
        )
    missing = [key for key in ("vit.format", "vit.digests", "vit.seal") if key not in metadata]
    if missing:
        raise WeightsError(f"{path}: no {', '.join(missing)} in its header; copy the file again")
    if metadata["vit.seal"] != _seal_of(metadata):
        raise WeightsError(f"{path}: the header was changed after writing; copy the file again")
    with guarded(path, "weights file"):
        digests: dict[str, str] = parse_json(metadata["vit.digests"])
        if not isinstance(digests, dict):
            raise ValueError("vit.digests is not a JSON object")
    if names := sorted(digests.keys() ^ header.entries.keys()):
        raise WeightsError(f"{path}: tensors and digests differ in their names: {', '.join(names)}")
    return Seal(version, digests)


def tensors_of(header: FileHeader, path: Path) -> dict[str, Stored]:
    """Return the tensors of a file; if it is sealed, `load` of a damaged one raises WeightsError.

    Raises:
        WeightsError: see `check_seal`.
    """
    if not is_sealed(header):
        return described(header, path)
    seal = check_seal(path, header)

    def one(name: str) -> Stored:
        entry = header.entries[name]

        def load() -> np.ndarray:
            array = read_entry(path, name, entry)
            if not seal.fits(name, array):
                raise damage_error(path, name)
            return array

        return Stored(entry.shape, entry.dtype, load)

    return {name: one(name) for name in header.entries}


def damage_error(path: Path, *names: str) -> WeightsError:
    """Make the error of tensors that do not match their digests."""
    return WeightsError(
        f"{path}: damaged, the bytes of {', '.join(names)} do not match their digest;"
        " copy the file again"
    )


def hasher_of(shape: tuple[int, ...], dtype: np.dtype, version: str = FORMAT) -> Hasher:
    """Start the digest of a tensor, before its bytes are added."""
    return _HASHERS[version](f"{type_name(dtype)}{shape}".encode())


def put_seal(metadata: dict[str, str], digests: Mapping[str, str]) -> None:
    """Add the three entries of a seal; other digests later leave their length unchanged."""
    metadata["vit.format"] = FORMAT
    metadata["vit.digests"] = json.dumps(digests, ensure_ascii=False)
    metadata["vit.seal"] = _seal_of(metadata)


def _seal_of(metadata: Mapping[str, str]) -> str:
    keys = sorted(key for key in metadata if key.startswith("vit.") and key != "vit.seal")
    pairs = "".join(f"{key}\0{metadata[key]}\0" for key in keys)
    return hashlib.sha256(pairs.encode(errors="surrogatepass")).hexdigest()


def json_digest(value: Any) -> str:
    """Compute SHA-256 (hex) of a JSON value, however a file lays it out: keys sorted, ASCII.

    The digest is for accidents and small temptations: a forger can seal a file again.
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
