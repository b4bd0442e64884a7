"""Safetensors files written tensor by tensor.

The digests of a sealed file are known only after the last tensor is written. They have a fixed
length, so the header is written first with blanks and again at the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import numpy as np

from vit_config.errors import ConfigError, WeightsError
from vit_config.files.safetensors_header import TYPES
from vit_config.files.seal import array_bytes, hasher_of, put_seal
from vit_config.files.stored import PIECE, Extent, Stored, type_name

_NAMES = {name: kind for kind, name in TYPES.items()}
_BLANK = "0" * 32

Late = Callable[[], Mapping[str, str]]
"""Function that returns late metadata, whose entries are as long as their placeholders."""


def ignore(count: int) -> None:
    """Ignore progress: the default callback."""


def write_stream(
    file: BinaryIO,
    tensors: Mapping[str, Stored],
    metadata: Mapping[str, str],
    *,
    sealed: bool,
    progress: Callable[[int], None] = ignore,
    late: Late | None = None,
) -> None:
    """Write safetensors to an empty seekable file; one tensor is in memory at a time.

    Args:
        sealed: add ``vit.format``, ``vit.digests`` and ``vit.seal`` to the metadata.
        progress: called with the number of bytes just written.
        late: function that returns metadata known only when every tensor is written.

    Raises:
        ConfigError: safetensors lacks a tensor's type, or metadata is not text.
        WeightsError: a tensor cannot be read.
    """
    metadata = dict(metadata)
    # wide types first, which aligns every tensor; else in the given order: a part read once is kept once
    names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    digests = dict.fromkeys(names, _BLANK)
    if sealed:
        put_seal(metadata, digests)
    header = _header(tensors, names, metadata)
    file.write(header)
    for name in names:
        digests[name] = _write_sealed(file, name, tensors[name], progress)
    if late is not None:
        file.flush()
        os.fsync(file.fileno())  # the late metadata is computed meanwhile
        metadata.update(late())
    if sealed:
        put_seal(metadata, digests)
        final = _header(tensors, names, metadata)
        assert len(final) == len(header), (len(final), len(header))
        file.seek(0)
        file.write(final)


def write_tensor(
    write: Callable[[memoryview], object], name: str, stored: Stored, progress: Callable[[int], None]
) -> None:
    """Write a tensor's bytes in pieces, each of which is gone when the next is written.

    Raises:
        WeightsError: a tensor cannot be read, or is not as announced.
    """
    for piece in _pieces(name, stored):
        write(piece)
        progress(len(piece))


def _pieces(name: str, stored: Stored) -> Iterator[memoryview]:
    if isinstance(stored.load, Extent):
        yield from map(array_bytes, stored.load.pieces(stored.dtype, stored.nbytes))
        return
    data = array_bytes(checked_load(name, stored))
    for begin in range(0, len(data), PIECE):
        yield data[begin : begin + PIECE]


def checked_load(name: str, stored: Stored) -> np.ndarray:
    """Load a tensor's array, which must be as announced, for its place in the file is fixed already."""
    array = stored.load()
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.shape != stored.shape or array.dtype != stored.dtype.newbyteorder("="):
        raise WeightsError(
            f"{name}: announced as {stored.dtype} of shape {stored.shape}, read as {array.dtype} of"
            f" shape {array.shape}; the file changed while it was read"
        )
    return array


def _write_sealed(file: BinaryIO, name: str, stored: Stored, progress: Callable[[int], None]) -> str:
    """Write a tensor; return its digest."""
    hasher = hasher_of(stored.shape, stored.dtype)

    def write(piece: memoryview) -> None:
        hasher.update(piece)
        file.write(piece)

    write_tensor(write, name, stored, progress)
    return hasher.hexdigest()


def _header(tensors: Mapping[str, Stored], names: list[str], metadata: Mapping[str, str]) -> bytes:
    content: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        stored = tensors[name]
        kind = _NAMES.get(type_name(stored.dtype))
        if kind is None or name == "__metadata__":
            raise ConfigError(f"{name}: safetensors cannot hold a {stored.dtype} tensor of this name")
        begin, end = end, end + stored.nbytes
        content[name] = {
            "dtype": kind,
            "shape": list(stored.shape),
            "data_offsets": [begin, end],
        }
    try:
        if not all(isinstance(each, str) for pair in metadata.items() for each in pair):
            raise TypeError("metadata is not text")
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"names and metadata of a safetensors file must be text: {error}") from None
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
