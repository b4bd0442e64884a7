"""Writer of the HDF5 files that Keras loads, in the part of the format that `hdf5` reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from parity.porting.formats.base import Progress, Stored
from parity.porting.formats.hdf5 import CONTIGUOUS, LAYOUT, MAGIC, NOWHERE, SPACE, TABLE, TYPE
from vit_config.errors import ConfigError
from vit_config.files.safetensors_stream import ignore, write_tensor

_FLOATS = {"float16": (10, 5), "float32": (23, 8), "float64": (52, 11)}
"""Bits of mantissa and exponent."""
_CHILDREN = 16
"""Half of the most children of a B-tree's node; each group here has one."""


def write_hdf5(file: BinaryIO, tensors: Mapping[str, Stored], progress: Progress = ignore) -> None:
    """Write arrays into groups of an empty file by their paths, one tensor in memory at a time.

    Args:
        progress: called with the number of bytes just written.

    Raises:
        ConfigError: the file cannot hold these types.
        WeightsError: a tensor cannot be read.
    """
    for name, stored in tensors.items():
        if stored.dtype.name not in (*_FLOATS, "int32"):
            raise ConfigError(
                f"{name}: Keras' files hold no {stored.dtype} that we could write; give --dtype float32"
            )
    head, places = _head(tensors)
    file.write(head)
    for name, stored in tensors.items():
        file.write(bytes(places[name] - file.tell()))
        write_tensor(file.write, name, stored, progress)


class _Group(NamedTuple):
    groups: dict[str, _Group]
    arrays: dict[str, str]
    """Full names by the last level."""


def _grouped(names: Mapping[str, Stored]) -> _Group:
    root = _Group({}, {})
    for name in names:
        group, (*path, own) = root, name.split("/")
        for level in path:
            group = group.groups.setdefault(level, _Group({}, {}))
        group.arrays[own] = name
    return root


def _head(tensors: Mapping[str, Stored]) -> tuple[bytes, dict[str, int]]:
    """Build everything before the values, and the place of each tensor's values behind it."""
    root = _grouped(tensors)
    leaf = max(len(each.groups) + len(each.arrays) for each in _walk(root)) // 2 + 1
    places = dict.fromkeys(tensors, 0)
    length = len(_laid_out(root, tensors, places, leaf))  # the same whatever the places are
    for name, stored in tensors.items():
        places[name] = length
        length += -(-stored.nbytes // 8) * 8
    return _laid_out(root, tensors, places, leaf), places


def _walk(group: _Group) -> Iterator[_Group]:
    yield group
    for each in group.groups.values():
        yield from _walk(each)


def _laid_out(
    root: _Group, tensors: Mapping[str, Stored], places: Mapping[str, int], leaf: int
) -> bytes:
    out = bytearray(96)
    address, tree, heap = _write_group(out, root, tensors, places, leaf)
    end = max((places[n] + s.nbytes for n, s in tensors.items()), default=0)
    out[:96] = (
        MAGIC
        + struct.pack("<8BHHI", 0, 0, 0, 0, 0, 8, 8, 0, leaf, _CHILDREN, 0)
        + struct.pack("<4Q", 0, NOWHERE, max(end, len(out)), NOWHERE)
        + struct.pack("<QQIIQQ", 0, address, 1, 0, tree, heap)
    )
    return bytes(out)


def _write_group(
    out: bytearray, group: _Group, tensors: Mapping[str, Stored], places: Mapping[str, int], leaf: int
) -> tuple[int, int, int]:
    """Append a group and everything in it; return where its header, its tree and its names are."""
    children = {}
    for name, each in group.groups.items():
        children[name] = _write_group(out, each, tensors, places, leaf)
    for name, full in group.arrays.items():
        children[name] = (_append(out, _array_header(tensors[full], places[full])),)
    letters, offsets = bytearray(8), {}
    ordered = sorted(children, key=str.encode)
    for name in ordered:
        offsets[name] = len(letters)
        letters += _padded(name.encode() + b"\0")
    data = _append(out, bytes(letters))
    heap = _append(out, struct.pack("<4s4xQQQ", b"HEAP", len(letters), 1, data))
    entries = b"".join(
        struct.pack("<QQIIQQ", offsets[name], children[name][0], len(children[name]) > 1, 0, *scratch)
        for name in ordered
        for scratch in [children[name][1:] or (0, 0)]
    )
    names = struct.pack("<4sBBH", b"SNOD", 1, 0, len(ordered)) + entries
    names = _append(out, names.ljust(8 + 2 * leaf * 40, b"\0"))
    last = offsets[ordered[-1]]
    node = struct.pack("<4sBBHQQQQQ", b"TREE", 0, 0, 1, NOWHERE, NOWHERE, 0, names, last)
    tree = _append(out, node.ljust(24 + 8 + 2 * _CHILDREN * 16, b"\0"))
    return _append(out, _header((TABLE, struct.pack("<QQ", tree, heap)))), tree, heap


def _array_header(stored: Stored, place: int) -> bytes:
    shape, dtype = stored.shape, stored.dtype
    bits = 8 * dtype.itemsize
    if dtype.kind == "i":
        kind = struct.pack("<4BIHH", 0x10, 0x08, 0, 0, dtype.itemsize, 0, bits)
    else:
        mantissa, exponent = _FLOATS[dtype.name]
        kind = struct.pack("<4BI", 0x11, 0x20, bits - 1, 0, dtype.itemsize)
        bias = 2 ** (exponent - 1) - 1
        kind += struct.pack("<HH4BI", 0, bits, mantissa, exponent, 0, mantissa, bias)
    place = place if stored.nbytes else NOWHERE  # as HDF5 has it for no values
    space = struct.pack(f"<BBB5x{len(shape)}Q", 1, len(shape), 0, *shape)
    return _header(
        (SPACE, space),
        (TYPE, kind),
        (LAYOUT, struct.pack("<BBQQ", *CONTIGUOUS, place, stored.nbytes)),
    )


def _header(*messages: tuple[int, bytes]) -> bytes:
    body = b"".join(
        struct.pack("<HHB3x", kind, len(_padded(data)), 0) + _padded(data) for kind, data in messages
    )
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def _append(out: bytearray, data: bytes) -> int:
    address = len(out)
    out += _padded(data)
    return address


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 8) * 8, b"\0")
