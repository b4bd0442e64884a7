"""Writer of Flax's msgpack files, without Flax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgpack

from parity.porting.formats.base import Progress, Stored
from parity.porting.formats.msgpack_reader import ARRAY, CHUNKED
from parity.porting.formats.torch_types import DTYPES
from vit_config.errors import ConfigError
from vit_config.files.safetensors_stream import checked_load, ignore, write_tensor

LONGEST = 2**30
"""Most bytes of an array that flax writes as one value; a longer one is split into chunks."""


def write_msgpack(file: BinaryIO, tree: Mapping[str, Any], progress: Progress = ignore) -> None:
    """Write a tree that ``flax.serialization.msgpack_restore`` reads, one tensor in memory at a time.

    Args:
        tree: nested mappings of `Stored` tensors, numbers, texts, booleans and None.
        progress: called with the number of bytes just written.

    Raises:
        ConfigError: the file cannot hold a value of the tree.
        WeightsError: a tensor cannot be read.
    """
    _write(file, "", tree, progress)


def _write(file: BinaryIO, name: str, value: Any, progress: Progress) -> None:
    if isinstance(value, Mapping):
        _map_header(file, len(value))
        for key, child in value.items():
            file.write(_packed(name, str(key)))
            _write(file, f"{name}/{key}" if name else str(key), child, progress)
    elif not isinstance(value, Stored):
        file.write(_packed(name, value))
    elif value.dtype.name not in DTYPES:
        raise ConfigError(f"{name}: msgpack cannot hold {value.dtype}; convert it to another type")
    elif value.nbytes <= LONGEST:
        _write_array(file, name, value, progress)
    else:
        _write_chunks(file, name, value, progress)


def _write_array(file: BinaryIO, name: str, stored: Stored, progress: Progress) -> None:
    head = b"\x93" + _packed("", list(stored.shape)) + _packed("", stored.dtype.name)
    head += b"\xc6" + stored.nbytes.to_bytes(4, "big")
    file.write(b"\xc9" + (len(head) + stored.nbytes).to_bytes(4, "big") + bytes([ARRAY]) + head)
    write_tensor(file.write, name, stored, progress)


def _write_chunks(file: BinaryIO, name: str, stored: Stored, progress: Progress) -> None:
    flat, step = checked_load(name, stored).reshape(-1), max(1, LONGEST // stored.dtype.itemsize)
    _map_header(file, 3)
    file.write(_packed("", CHUNKED) + _packed("", True) + _packed("", "shape"))
    file.write(_packed("", {str(axis): length for axis, length in enumerate(stored.shape)}))
    file.write(_packed("", "chunks"))
    _map_header(file, math.ceil(flat.size / step))
    for index, begin in enumerate(range(0, flat.size, step)):
        file.write(_packed("", str(index)))
        _write_array(file, name, Stored.of(flat[begin : begin + step]), progress)


def _map_header(file: BinaryIO, length: int) -> None:
    file.write(msgpack.Packer().pack_map_header(length))


def _packed(name: str, value: Any) -> bytes:
    try:
        return msgpack.packb(value)  # pyright: ignore[reportReturnType]
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name}: msgpack cannot hold {type(value).__name__} ({error})") from None
