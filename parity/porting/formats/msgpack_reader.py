"""Lazy reader of Flax's msgpack files, without Flax: arrays are found here and read when loaded.

A file is one value of the msgpack format. An array is an extension of type 1 whose payload is itself
msgpack: (shape, name of the type, bytes); a numpy scalar is type 3, a complex number type 2. An array
too long for one value is a map of flat chunks.

The library reads what stands between arrays, and each array once, which is dropped as soon as its place
is known. Maps and lists are walked here, so that each entry counts before the next one is made.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from parity.porting.formats.base import Stored
from parity.porting.formats.budget import Budget
from parity.porting.formats.flatten import Flat
from parity.porting.formats.torch_types import DTYPES
from vit_config.errors import WeightsError
from vit_config.files.stored import checked_shape, guarded

CHUNKED = "__msgpack_chunked_array__"
ARRAY, COMPLEX, SCALAR = 1, 2, 3
_DEEPEST = 100
_VALUE = 100
"""Bytes that a value takes with its place in a list or map, in addition to its letters."""
_HEAD = 1024
"""Bytes of an array's extension that hold its shape and the name of its type."""


def read_msgpack(path: Path, budget: Budget) -> Flat:
    """Read everything in the file except the arrays' bytes.

    Raises:
        WeightsError: the file is truncated, has bytes after its end, or is not Flax's.
    """
    size = path.stat().st_size
    with path.open("rb") as file, path.open("rb") as codes:
        walk = _Walk(path, file, codes, budget)
        try:
            root = walk.value()
        except msgpack.UnpackException:
            raise WeightsError(
                f"{path}: truncated or damaged msgpack file: what begins at byte {walk.unpacker.tell()}"
                f" of {size} does not end in it, or is of no known kind; copy it again"
            ) from None
        if (end := walk.unpacker.tell()) != size:
            raise WeightsError(
                f"{path}: {size} bytes where its contents end at byte {end}; it is not one whole file"
            )
    flat = Flat("/", budget)
    flat.add("", root)
    return flat


class _Walk:
    def __init__(self, path: Path, file: BinaryIO, codes: BinaryIO, budget: Budget):
        self.unpacker = msgpack.Unpacker(file, max_buffer_size=path.stat().st_size)
        self._path, self._codes, self._budget = path, codes, budget

    def value(self, depth: int = 0) -> Any:
        """Read the next value."""
        if depth > _DEEPEST:
            raise WeightsError(f"{self._path}: nested more than {_DEEPEST} deep; no checkpoint is")
        self._budget.objects(_VALUE)
        self._codes.seek(self.unpacker.tell())
        code = self._codes.read(1)
        if b"\x80" <= code <= b"\x8f" or code in (b"\xde", b"\xdf"):
            return self._map(self.unpacker.read_map_header(), depth + 1)
        if b"\x90" <= code <= b"\x9f" or code in (b"\xdc", b"\xdd"):
            return [self.value(depth + 1) for _ in range(self.unpacker.read_array_header())]
        value = self.unpacker.unpack()
        return self._extension(*value) if isinstance(value, msgpack.ExtType) else value

    def _map(self, length: int, depth: int) -> Any:
        entries: dict[str, Any] = {}
        for _ in range(length):
            key = self.value(depth)
            if not isinstance(key, str | int) or str(key) in entries:
                raise ValueError(
                    f"a map with the key {str(key)[:40]} that is not text or is there twice"
                )
            entries[str(key)] = self.value(depth)
        return _joined(entries) if CHUNKED in entries else entries

    def _extension(self, kind: int, content: bytes) -> Any:
        if kind == COMPLEX:
            return complex(*msgpack.unpackb(content[:_HEAD]))
        if kind not in (ARRAY, SCALAR):
            raise ValueError(f"an extension of type {kind}, which flax does not write")
        stored = self._array(content)
        return stored.load()[()].item() if kind == SCALAR and stored.shape == () else stored

    def _array(self, content: bytes) -> Stored:
        """Return the array that was just read, whose bytes end where the file is read to."""
        head = msgpack.Unpacker()
        head.feed(content[:_HEAD])
        if head.read_array_header() != 3:
            raise ValueError("an array without shape, type and bytes")
        shape, name = head.unpack(), head.unpack()
        name = name.decode() if isinstance(name, bytes) else str(name)
        if name not in DTYPES:
            raise WeightsError(f"{self._path}: an array of type {name[:40]}, which no model has")
        path, dtype = self._path, DTYPES[name]
        shape = checked_shape(shape, dtype.itemsize)
        rest = memoryview(content)[head.tell() :]
        values = msgpack.unpackb(rest, raw=True, max_array_len=0, max_map_len=0)
        length = len(values) if isinstance(values, bytes) else "no"
        if length != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"an array of {name} and shape {shape} with {length} bytes")
        start = self.unpacker.tell() - length
        return Stored(shape, dtype, lambda: _load(path, start, shape, dtype))


def _load(path: Path, start: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    with guarded(path, "msgpack file"), path.open("rb") as file:
        content = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
        file.seek(start)
        if file.readinto(content.data) != content.size:
            raise WeightsError(f"{path}: an array ends too early; copy the file again")
        return content.view(dtype).reshape(shape)


def _joined(entries: dict[str, Any]) -> Stored:
    """Join the consecutive chunks of an array."""
    chunks = _listed(entries["chunks"])
    lengths = _listed(entries["shape"])
    if not chunks or not all(isinstance(each, Stored) for each in chunks):
        raise ValueError("an array in chunks that are not arrays")
    dtype = chunks[0].dtype
    shape = checked_shape(lengths, dtype.itemsize)
    sizes = [math.prod(each.shape) for each in chunks]
    if any(each.dtype != dtype for each in chunks) or sum(sizes) != math.prod(shape):
        raise ValueError(f"an array of {dtype} and shape {shape} in chunks of {sizes[:9]}")

    def load() -> np.ndarray:
        whole = np.empty(sum(sizes), dtype)
        begin = 0
        for chunk, size in zip(chunks, sizes, strict=True):
            whole[begin : begin + size] = chunk.load().reshape(-1)
            begin += size
        return whole.reshape(shape)

    return Stored(shape, dtype, load)


def _listed(entries: dict[str, Any]) -> list[Any]:
    return [entries[str(index)] for index in range(len(entries))]
