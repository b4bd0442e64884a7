"""Lazy reader of Flax's msgpack files, without Flax: it finds each array but does not read its bytes.

A file is one value of the msgpack format. An array is an extension of type 1 whose payload is itself
msgpack: (shape, name of the type, bytes); a numpy scalar is type 3, a complex number type 2. An array
too long for one value is a map of flat chunks.

The library `msgpack` returns each extension as bytes, so it reads all tensors to find the name of one,
and it checks lengths in a damaged file against fixed limits, not against the file. This parser skips the
bytes of arrays and compares every length with the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

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
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {
    0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xC7: ("ext", 1), 0xC8: ("ext", 2),
    0xC9: ("ext", 4), 0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4), 0xDC: ("array", 2),
    0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def read_msgpack(path: Path, budget: Budget) -> Flat:
    """Read everything in the file except the arrays' bytes.

    Raises:
        WeightsError: the file is truncated, has bytes after its end, or is not Flax's.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        parser = _Parser(path, file, size, budget)
        root = parser.value()
        if file.tell() != size:
            raise WeightsError(
                f"{path}: {size} bytes where its contents end at byte {file.tell()}; it is not"
                " one whole file"
            )
    flat = Flat("/", budget)
    flat.add("", root)
    return flat


class _Parser:
    def __init__(self, path: Path, file: BinaryIO, size: int, budget: Budget):
        self._path = path
        self._file = file
        self._size = size
        self._budget = budget

    def value(self, depth: int = 0, end: int | None = None) -> Any:
        """Read the next value, which ends at or before byte `end`."""
        if depth > _DEEPEST:
            raise WeightsError(f"{self._path}: nested more than {_DEEPEST} deep; no checkpoint is")
        self._budget.objects(_VALUE)
        end = self._size if end is None else end
        code = self._bytes(1, end)[0]
        if code <= 0x7F or code >= 0xE0:
            return code if code <= 0x7F else code - 256
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return struct.unpack(form, self._bytes(struct.calcsize(form), end))[0]
        kind, length = self._length(code, end)
        read: Callable[[int, int, int], Any] = getattr(self, f"_{kind}")
        return read(length, depth, end)

    def _length(self, code: int, end: int) -> tuple[str, int]:
        """Return the kind of the value that follows, and its length in entries or bytes."""
        if code <= 0x8F:
            return "map", code & 0x0F
        if code <= 0x9F:
            return "array", code & 0x0F
        if code <= 0xBF:
            return "str", code & 0x1F
        if code in _FIXED:
            return "ext", _FIXED[code]
        if code not in _LENGTHS:
            raise ValueError(f"no value starts with byte {code:02x}")
        kind, width = _LENGTHS[code]
        return kind, int.from_bytes(self._bytes(width, end), "big")

    def _str(self, length: int, _: int, end: int) -> str:
        return self._bytes(length, end).decode()

    def _bin(self, length: int, _: int, end: int) -> bytes:
        return self._bytes(length, end)

    def _array(self, length: int, depth: int, end: int) -> list:
        return [self.value(depth + 1, end) for _ in range(length)]

    def _map(self, length: int, depth: int, end: int) -> Any:
        entries: dict[str, Any] = {}
        for _ in range(length):
            key = self.value(depth + 1, end)
            if not isinstance(key, str | int) or str(key) in entries:
                raise ValueError(
                    f"a map with the key {str(key)[:40]} that is not text or is there twice"
                )
            entries[str(key)] = self.value(depth + 1, end)
        return _joined(entries) if CHUNKED in entries else entries

    def _ext(self, length: int, depth: int, end: int) -> Any:
        kind = self._bytes(1, end)[0]
        stop = self._file.tell() + length
        self._check(length, end)
        if kind == COMPLEX:
            value = complex(*self.value(depth + 1, stop))
        elif kind in (ARRAY, SCALAR):
            stored = self._stored(stop)
            value = stored.load()[()].item() if kind == SCALAR and stored.shape == () else stored
        else:
            raise ValueError(f"an extension of type {kind}, which flax does not write")
        if self._file.tell() != stop:
            raise ValueError(f"an extension that ends at byte {self._file.tell()}, expected {stop}")
        return value

    def _stored(self, end: int) -> Stored:
        """Read an array (shape, name of the type, bytes), keeping only the offset of its bytes."""
        if self._bytes(1, end) != b"\x93":
            raise ValueError("an array without shape, type and bytes")
        shape, name = self.value(_DEEPEST - 1, end), self.value(_DEEPEST, end)
        name = name.decode() if isinstance(name, bytes) else str(name)
        if name not in DTYPES:
            raise WeightsError(f"{self._path}: an array of type {name[:40]}, which no model has")
        shape = checked_shape(shape, DTYPES[name].itemsize)
        kind, length = self._length(self._bytes(1, end)[0], end)
        start = self._file.tell()
        if kind not in ("bin", "str") or length != math.prod(shape) * DTYPES[name].itemsize:
            raise ValueError(f"an array of {name} and shape {shape} with {length} bytes")
        self._check(length, end)
        self._file.seek(start + length)
        return Stored(shape, DTYPES[name], lambda: _load(self._path, start, shape, DTYPES[name]))

    def _bytes(self, count: int, end: int) -> bytes:
        self._check(count, end)
        return self._file.read(count)

    def _check(self, count: int, end: int) -> None:
        if self._file.tell() + count > end:
            raise WeightsError(
                f"{self._path}: truncated or damaged msgpack file, {end - self._file.tell()} bytes where"
                f" {count} are announced, at byte {self._file.tell()} of {self._size}; copy it again"
            )


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
