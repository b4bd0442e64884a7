"""Reader of the HDF5 that Keras and h5py write: groups as symbol tables, arrays in one piece.

A part of the format (The HDF Group, "HDF5 File Format Specification", version 3): superblock 0, object
headers 1, B-trees 1. Links to other files, filters, chunks and texts are not followed or read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from parity.porting.formats.base import Stored, lying_at
from parity.porting.formats.budget import Budget
from parity.porting.formats.flatten import Flat
from parity.porting.formats.part import FilePart
from vit_config.errors import WeightsError
from vit_config.files.stored import checked_shape

MAGIC = b"\x89HDF\r\n\x1a\n"
NOWHERE = 2**64 - 1
"""Address of what is not in the file."""
SPACE, TYPE, EXTERNAL, LAYOUT, FILTERS, CONTINUED, TABLE = 0x01, 0x03, 0x07, 0x08, 0x0B, 0x10, 0x11
"""Kinds of a header's messages."""
KIND = "HDF5 file"
CONTIGUOUS = (3, 1)
"""Version and kind of a layout in one piece."""
_DEEPEST = 32
_OBJECT = 200
"""Bytes of memory that a group or array takes."""
_FLOATS = {(2, 5): np.float16, (2, 8): ml_dtypes.bfloat16, (4, 8): np.float32, (8, 11): np.float64}
"""Types by their bytes and the bits of the exponent."""


def read_hdf5(path: Path | FilePart, budget: Budget) -> Flat:
    """Open the arrays of a file without reading them, by their paths.

    Raises:
        WeightsError: the file is damaged, or has a part of the format that Keras does not write.
    """
    flat = Flat("/", budget)
    with path.open("rb") as file:
        reader = _Reader(file, path, budget)
        for name, stored in reader.arrays(reader.root(), "", 0):
            flat.add(name, stored)
    return flat


class _Message(NamedTuple):
    kind: int
    data: bytes


class _Reader:
    def __init__(self, file: BinaryIO, path: Path | FilePart, budget: Budget):
        self._file, self._path, self._budget = file, path, budget
        self._size = path.stat().st_size
        self._seen: set[int] = set()

    def root(self) -> int:
        """Return the address of the first group's header."""
        head = self._at(0, 96)
        if head[:8] != MAGIC or head[8] != 0 or head[13:15] != b"\x08\x08":
            raise WeightsError(
                f"is HDF5 with superblock {head[8]}; only that of h5py's default (0) is read"
            )
        if (end := self._number(head, 40)) != self._size:
            raise WeightsError(f"has {self._size} bytes, and says that it ends at {end}; copy it again")
        return self._number(head, 64)

    def arrays(self, address: int, name: str, depth: int) -> Iterator[tuple[str, Stored]]:
        """Yield every array under an object, with its path."""
        if address in self._seen or depth > _DEEPEST:
            raise WeightsError(
                f"{name[:80] or '/'}: lies within itself, or deeper than {_DEEPEST} groups"
            )
        self._seen.add(address)
        self._budget.objects(_OBJECT + len(name))
        messages = {each.kind: each.data for each in self._messages(address)}
        if TABLE in messages:
            tree, heap = struct.unpack_from("<QQ", messages[TABLE])
            names = self._heap(heap)
            for offset, child in self._links(tree, 0):
                own = names[offset:].split(b"\0", 1)[0].decode()
                yield from self.arrays(child, f"{name}/{own}" if name else own, depth + 1)
        elif LAYOUT in messages:
            if (stored := self._array(name, messages)) is not None:
                yield name, stored
        else:
            raise WeightsError(
                f"{name[:80] or '/'} is neither a group nor an array as Keras writes them"
            )

    def _messages(self, address: int) -> Iterator[_Message]:
        version, count, _, size = struct.unpack("<BxHII", self._at(address, 12))
        if version != 1:
            raise WeightsError(f"an object header of version {version} at byte {address} is not read")
        blocks = [(address + 16, size)]
        for begin, length in blocks:
            self._budget.objects(length)
            data, at = self._at(begin, length), 0
            while at + 8 <= length and count:
                kind, nbytes, flags = struct.unpack_from("<HHB", data, at)
                content, at, count = data[at + 8 : at + 8 + nbytes], at + 8 + nbytes, count - 1
                if flags & 2:
                    raise WeightsError(f"a message at byte {begin} lies elsewhere, which is not read")
                if kind == CONTINUED:
                    blocks.append(struct.unpack_from("<QQ", content))
                else:
                    yield _Message(kind, content)

    def _links(self, address: int, depth: int) -> Iterator[tuple[int, int]]:
        """Yield the place of a name in the heap, and the address of its object, of a B-tree's leaves."""
        if address in self._seen or depth > _DEEPEST:
            raise WeightsError(f"the table of names at byte {address} lies within itself")
        self._seen.add(address)
        signature, kind, level, count = struct.unpack("<4sBBH", self._at(address, 8))
        if signature != b"TREE" or kind != 0:
            raise WeightsError(f"no table of names at byte {address}")
        self._budget.objects(count * 16)
        for number in range(count):
            child = self._number(self._at(address + 32 + 16 * number, 8), 0)
            yield from self._links(child, depth + 1) if level else self._leaf(child)

    def _leaf(self, address: int) -> Iterator[tuple[int, int]]:
        signature, count = struct.unpack("<4sxxH", self._at(address, 8))
        if signature != b"SNOD" or address in self._seen:
            raise WeightsError(f"no names at byte {address}")
        self._seen.add(address)
        entries = self._at(address + 8, 40 * count)
        for name, header, cached in struct.iter_unpack("<QQI20x", entries):
            if cached == 2:
                raise WeightsError(f"a link by name at byte {address}, which no weights need")
            yield name, header

    def _heap(self, address: int) -> bytes:
        signature, size, _, begin = struct.unpack("<4s4xQQQ", self._at(address, 32))
        if signature != b"HEAP":
            raise WeightsError(f"no names at byte {address}")
        self._budget.objects(size)
        return self._at(begin, size)

    def _array(self, name: str, messages: dict[int, bytes]) -> Stored | None:
        """Return an array; None for texts and records, which are no tensors."""
        dtype = _dtype(messages[TYPE])
        if dtype is None:
            return None
        shape = checked_shape(_shape(messages[SPACE]), dtype.itemsize)
        nbytes = math.prod(shape) * dtype.itemsize
        version, kind = messages[LAYOUT][:2]
        if FILTERS in messages or EXTERNAL in messages or version not in (3, 4) or kind != 1:
            raise WeightsError(f"{name} is not in one piece as it is (chunks, filters or another file)")
        begin, size = struct.unpack_from("<QQ", messages[LAYOUT], 2)
        if nbytes and (begin == NOWHERE or size != nbytes or begin + nbytes > self._size):
            raise WeightsError(
                f"{name} has {size} bytes from byte {begin} of {self._size}, its shape {shape} of"
                f" {dtype} takes {nbytes}"
            )
        path = self._path
        return lying_at(lambda: path.open("rb"), begin if nbytes else 0, shape, dtype, path)

    def _at(self, address: int, count: int) -> bytes:
        if address + count > self._size:
            raise WeightsError(
                f"damaged or truncated {KIND}: it ends at byte {self._size}, before what lies at byte"
                f" {address}; copy it again"
            )
        self._file.seek(address)
        return self._file.read(count)

    @staticmethod
    def _number(data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + 8], "little")


def _shape(data: bytes) -> list[int]:
    version, rank = data[:2]
    begin = {1: 8, 2: 4}[version]
    return [int(each) for each in struct.unpack_from(f"<{rank}Q", data, begin)]


def _dtype(data: bytes) -> np.dtype[Any] | None:
    """Return the type of numbers; None of anything else."""
    kind, bits, size = data[0] & 15, data[1], int.from_bytes(data[4:8], "little")
    order = ">" if bits & 1 else "<"
    if kind == 0 and size in (1, 2, 4, 8):
        return np.dtype(f"{order}{'i' if bits & 8 else 'u'}{size}")
    if kind == 1 and len(data) >= 14 and (name := _FLOATS.get((size, data[13]))) is not None:
        return np.dtype(name).newbyteorder(order)
    # numpy's bfloat16 has no name in HDF5
    return np.dtype(ml_dtypes.bfloat16) if kind == 5 and size == 2 else None
