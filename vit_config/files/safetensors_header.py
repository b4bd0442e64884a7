"""The header of a safetensors file, read and checked.

Such a file is eight bytes of length, a header of JSON, and the tensors' bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vit_config.errors import WeightsError
from vit_config.files.foreign import parse_json, without_repeats
from vit_config.files.held import check_held
from vit_config.files.stored import Extent, Stored, checked_shape, counts, guarded

LONGEST_HEADER = 100_000_000
"""Most bytes of a header; the limit of the safetensors library."""

TYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""safetensors' names of numpy's types."""


class TensorEntry(NamedTuple):
    """One tensor of a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    begin: int
    """Place of the first byte, counted from the start of the file."""
    end: int


class FileHeader(NamedTuple):
    """A safetensors file without its tensors' bytes."""

    metadata: dict[str, str]
    entries: dict[str, TensorEntry]


def read_file_header(path: Path) -> FileHeader:
    """Read and check the header of a safetensors file that exists.

    Raises:
        WeightsError: the file is truncated or longer than its header announces, or the header
            contradicts itself.
    """
    with guarded(path, "safetensors file"):
        check_held(path)
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(LONGEST_HEADER, size - 8):
                raise WeightsError(
                    f"{path}: damaged or truncated safetensors file of {size} bytes: its header alone"
                    f" claims {length} (at most {LONGEST_HEADER}); copy it again"
                )
            text = file.read(length).decode()
        content = parse_json(text, pairs=without_repeats)
        if not isinstance(content, dict):
            raise ValueError("the header is not a JSON object")
        metadata = content.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(type(value) is str for value in metadata.values()):
            raise ValueError("__metadata__ is not an object of strings")
        entries = {name: _entry(path, name, value, 8 + length) for name, value in content.items()}
        _check_extents(path, entries, 8 + length, size)
        return FileHeader(metadata, entries)


def read_entry(path: Path, name: str, entry: TensorEntry) -> np.ndarray:
    """Read one tensor into a fresh array.

    Raises:
        WeightsError: the file no longer matches its header.
    """
    with guarded(path, "safetensors file"):
        content = np.empty(entry.end - entry.begin, np.uint8)
        with path.open("rb") as file:
            file.seek(entry.begin)
            if (count := file.readinto(content.data)) != content.size:
                raise WeightsError(f"{path}: {name} ends after {count} bytes of {content.size}")
        return content.view(entry.dtype).reshape(entry.shape)


def described(header: FileHeader, path: Path) -> dict[str, Stored]:
    """Return the tensors of a file by name, each read when asked for; without any digest."""

    def one(name: str, entry: TensorEntry) -> Stored:
        load = Extent(path, entry.begin, lambda: read_entry(path, name, entry))
        return Stored(entry.shape, entry.dtype, load)

    return {name: one(name, entry) for name, entry in header.entries.items()}


def _entry(path: Path, name: str, value: Mapping[str, Any], start: int) -> TensorEntry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} has no dtype, shape and data_offsets")
    kind = value["dtype"]
    if type(kind) is not str or kind not in TYPES:
        raise WeightsError(f"{path}: {name} has type {kind}; the known types are {', '.join(TYPES)}")
    dtype = np.dtype(TYPES[kind])
    begin, end = counts(value["data_offsets"])
    entry = TensorEntry(checked_shape(value["shape"], dtype.itemsize), dtype, start + begin, start + end)
    announced = math.prod(entry.shape) * dtype.itemsize
    if end - begin != announced:
        raise WeightsError(
            f"{path}: {name} has {end - begin} bytes, its shape {list(entry.shape)} of {kind} takes"
            f" {announced}; copy the file again"
        )
    return entry


def _check_extents(path: Path, entries: Mapping[str, TensorEntry], start: int, size: int) -> None:
    """Check that tensors lie one behind the other, without a gap, to the end of the file."""
    end = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise WeightsError(
                f"{path}: {name} starts at byte {entry.begin} where the tensor before it ends at {end};"
                " copy the file again"
            )
        end = entry.end
    if end != size:
        raise WeightsError(
            f"{path}: damaged or truncated safetensors file of {size} bytes where its header announces"
            f" {end}; copy it again"
        )
