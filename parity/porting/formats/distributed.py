"""Folders of ``torch.distributed.checkpoint``: pieces of tensors in shards, joined as they are read.

``.metadata`` is a pickle that says which piece lies where; each piece is a file of ``torch.save`` inside
of a shard. Both are read by this package's own interpreter, so that nothing in them is executed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from parity.porting.formats.archive import Archive
from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.budget import Budget, folder_budget
from parity.porting.formats.flatten import check_names
from parity.porting.formats.inert import Inert
from parity.porting.formats.opcodes import Machine
from parity.porting.formats.part import FilePart
from parity.porting.formats.torch_types import torch_dtype
from parity.porting.formats.torch_zip import prefix_of, read_torch_zip
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.lasting import lasting
from vit_config.files.stored import checked_shape, counts

METADATA = ".metadata"
_LARGEST = 2**28


class _Piece(NamedTuple):
    """A piece of a tensor, and the part of a shard that holds it."""

    place: tuple[slice, ...]
    shape: tuple[int, ...]
    part: FilePart


def is_distributed(folder: Path) -> bool:
    """Return whether a folder is a checkpoint of torch.distributed.checkpoint with its index."""
    return (folder / METADATA).is_file() and any(folder.glob("*.distcp"))


def read_distributed(folder: Path) -> Container:
    """Open a checkpoint; its pieces are read and put together when a tensor is loaded.

    Raises:
        WeightsError: the index is damaged, names a file outside of the folder, or leaves gaps.
        MissingFileError: a shard is missing.
    """
    with guarded(folder, "checkpoint of torch.distributed.checkpoint"):
        budget = folder_budget(folder)
        index = _index(index_file := lasting(folder / METADATA), budget)
        places = _places(folder, index)
        tensors = {
            name: _tensor(name, about, places.get(name, {}), budget)
            for name, about in _dict(index, "state_dict_metadata").items()
            if "chunks" in (_state(about) or {})
        }
        check_names(tensors)
    shards = tuple(map(lasting, sorted(folder.glob("*.distcp"))))
    return Container(folder, (index_file, *shards), f"torch.distributed ({len(shards)} shards)", tensors)


def _index(path: Path, budget: Budget) -> Mapping[str, Any]:
    if path.stat().st_size > _LARGEST:
        raise WeightsError(f"{path}: has {path.stat().st_size} bytes; no index needs so many")
    content = path.read_bytes()
    machine = Machine(io.BytesIO(content), len(content), lambda key: None, budget)
    return _state(machine.load()) or {}


def _state(value: Any) -> dict | None:
    """Return the fields of a record; None if it is no record with fields."""
    return value.state if isinstance(value, Inert) and isinstance(value.state, dict) else None


def _dict(fields: Mapping[str, Any], name: str) -> dict:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"no {name} in {METADATA}")
    return value


def _places(folder: Path, index: Mapping[str, Any]) -> dict[str, dict[tuple[int, ...], FilePart]]:
    """Return where the pieces of each tensor are, by their offsets in the tensor."""
    places: dict[str, dict[tuple[int, ...], FilePart]] = {}
    shards = dict[str, Path]()
    for key, value in _dict(index, "storage_data").items():
        name, info = _state(key) or {}, _state(value) or {}
        if info.get("transform_descriptors"):
            raise WeightsError(f"{folder}: its shards are compressed; save it without extensions")
        if name.get("offset") is None:  # an object that is no tensor
            continue
        begin, length = counts((info["offset"], info["length"]))
        file = info["relative_path"]
        path = shards[file] = shards.get(file) or lasting(_shard(folder, file))
        if begin + length > path.stat().st_size:
            raise WeightsError(
                f"{path}: ends before byte {begin + length}, where a piece ends; copy it again"
            )
        places.setdefault(name["fqn"], {})[counts(name["offset"])] = FilePart(path, begin, length)
    return places


def _shard(folder: Path, name: Any) -> Path:
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if len(parts) != 1 or parts[0] in ("/", "..") or "\\" in name or "\0" in name:
        raise WeightsError(
            f"{folder}: {METADATA} names the file {name!r:.80}, which is not in its folder"
        )
    if not (folder / name).is_file():
        raise MissingFileError(f"{folder / name}: no such file, but {METADATA} names it; copy it too")
    return folder / name


def _tensor(name: str, about: Any, places: Mapping[tuple[int, ...], FilePart], budget: Budget) -> Stored:
    fields = _state(about) or {}
    properties = fields["properties"].state
    kind = properties[0] if isinstance(properties, tuple) else (properties or {}).get("dtype")
    dtype = torch_dtype(kind)
    if dtype is None:
        raise WeightsError(f"{name}: of type {kind}, which no array of numpy can hold")
    shape = checked_shape(fields["size"], dtype.itemsize)
    pieces = [_piece(name, chunk, shape, places) for chunk in fields["chunks"]]
    covered = sum(math.prod(each.shape) for each in pieces)
    if covered != math.prod(shape):
        raise WeightsError(f"{name}: its pieces have {covered} values, the tensor {math.prod(shape)}")

    def load() -> np.ndarray:
        budget.values(math.prod(shape) * dtype.itemsize)
        whole, filled = np.empty(shape, dtype), np.zeros(shape if len(pieces) > 1 else (), bool)
        for each in pieces:
            if len(pieces) > 1:
                if filled[each.place].any():
                    raise WeightsError(f"{name}: two of its pieces overlap, so that they leave a gap")
                filled[each.place] = True
            whole[each.place] = _load(each, dtype)
        return whole

    return Stored(shape, dtype, load)


def _piece(
    name: str, chunk: Any, shape: tuple[int, ...], places: Mapping[tuple[int, ...], FilePart]
) -> _Piece:
    fields = _state(chunk) or {}
    begins, sizes = counts(fields["offsets"]), counts(fields["sizes"])
    inside = len(begins) == len(sizes) == len(shape) and all(
        begin + size <= whole for begin, size, whole in zip(begins, sizes, shape, strict=True)
    )
    if not inside or begins not in places:
        raise WeightsError(f"{name}: its piece at {begins} lies outside of {shape}, or in no shard")
    place = tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
    return _Piece(place, sizes, places[begins])


def _load(piece: _Piece, dtype: np.dtype) -> np.ndarray:
    with guarded(piece.part.path, "shard of torch.distributed.checkpoint"):
        budget = Budget(piece.part.path, piece.part.stat().st_size)
        archive = Archive(piece.part, "piece of a shard", budget)
        prefix = prefix_of(archive)
        tensors = [] if prefix is None else [*read_torch_zip(archive, prefix).tensors.values()]
        if len(tensors) != 1 or (tensors[0].shape, tensors[0].dtype) != (piece.shape, dtype):
            raise WeightsError(
                f"{piece.part}: is no tensor of {dtype} of shape {piece.shape}; copy it again"
            )
        return tensors[0].load()
