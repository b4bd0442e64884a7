"""Recognition of a file's kind by its first bytes, and the choice of its reader."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from parity.porting.formats.archive import Archive
from parity.porting.formats.base import Container, guarded
from parity.porting.formats.budget import Budget, budget_of
from parity.porting.formats.equinox import NAMELESS, read_equimo, read_equinox
from parity.porting.formats.flatten import Flat
from parity.porting.formats.gguf import MAGIC as GGUF
from parity.porting.formats.gguf import read_gguf
from parity.porting.formats.hdf5 import KIND, MAGIC, read_hdf5
from parity.porting.formats.lz4 import MAGIC as LZ4
from parity.porting.formats.npz import array_header
from parity.porting.formats.safetensors import read_safetensors
from parity.porting.formats.torch_legacy import read_torch_legacy
from parity.porting.formats.torch_zip import is_torchscript, prefix_of, read_torch_zip
from parity.porting.formats.weights_folder import SHARD, in_shards
from vit_config.errors import WeightsError
from vit_config.files.foreign import MOST_ENTRIES, parse_json
from vit_config.files.lasting import lasting

_TAR = slice(257, 262)
_ARRAY = b"\x93NUMPY"
_ONNX = b"\x08\x12"
"""First and third byte of a graph: the tags of its version and of its producer."""
_LONGEST_LINE = 2**16
KERAS = "Keras (HDF5)"
_KERAS_WEIGHTS, CONFIG = "model.weights.h5", "config.json"
"""Members of a ``.keras`` archive."""
_HINTS = {
    b"\x1f\x8b": "is compressed with gzip; unpack it first",
    b"<!DO": "is a web page, not a checkpoint; download it again",
    b"<htm": "is a web page, not a checkpoint; download it again",
    b"\x89PNG": "is an image, not a checkpoint",
    b"\xff\xd8\xff": "is an image, not a checkpoint",
    b"GIF8": "is an image, not a checkpoint",
    b"vers": "is a pointer of Git LFS, not the file; fetch it with `git lfs pull`",
}


def read_file(path: Path, budget: Budget | None = None) -> Container:
    """Open one file of any kind.

    Args:
        budget: budget of all files of the checkpoint, if this is one of several.

    Raises:
        WeightsError: the file is damaged, or of an unsupported kind.
    """
    if path.suffix == SHARD:
        raise WeightsError(in_shards(path.parent))
    with guarded(path, "checkpoint file"):
        path = lasting(path)
        with path.open("rb") as file:
            head = file.read(512)
    if head[8:9] == b"{":  # first, because the eight bytes before are a length of any value
        return read_safetensors(path)
    budget = budget or budget_of(path, [path])
    if head[:2] == b"PK":
        with guarded(path, "zip archive"):
            return _read_zip(path, budget)
    if head.startswith(MAGIC):
        with guarded(path, KIND):
            return _container(path, KERAS, read_hdf5(path, budget))
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        with guarded(path, "torch file"):
            return _container(path, "torch (legacy)", read_torch_legacy(path, budget))
    if head.startswith(_ARRAY):
        if _is_one_array(path):
            raise WeightsError(f"{path}: is one array of numpy, which has no name; give an .npz")
        return read_equinox(path, budget)
    if head.startswith(GGUF):
        return read_gguf(path, budget)
    if head.startswith(LZ4):
        return read_equimo(path, budget)
    if head.startswith(b"{") and b"\n" + _ARRAY in _first_bytes(path):
        raise WeightsError(f"{path}: {NAMELESS}")
    if head[:1] == _ONNX[:1] and head[2:3] in (_ONNX[1:], b"\x3a"):  # then a name, or the graph itself
        raise WeightsError(f"{path}: is an ONNX graph; give the checkpoint it was exported from")
    for magic, hint in _HINTS.items():
        if head.startswith(magic):
            raise WeightsError(f"{path}: {hint}")
    if head[_TAR] == b"ustar":
        raise WeightsError(f"{path}: is a tar archive; unpack it and give the path of the file in it")
    if head[:1] and (0x80 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF)):
        from parity.porting.formats.msgpack_reader import read_msgpack

        with guarded(path, "msgpack file"):
            return _container(path, "msgpack", read_msgpack(path, budget))
    raise WeightsError(
        f"{path}: {_what_it_is(path, head)}; the known kinds of checkpoints are safetensors, torch.save,"
        " TorchScript, .npz, flax msgpack, Keras and Orbax folders"
    )


def _is_one_array(path: Path) -> bool:
    """Return whether a file that begins with a numpy array ends with it."""
    with guarded(path, "file of numpy"), path.open("rb") as file:
        shape, _, dtype = array_header(file, "the array")
        return path.stat().st_size <= file.tell() + math.prod(shape) * dtype.itemsize


def _first_bytes(path: Path) -> bytes:
    """Read the first 64 KiB of a file, which hold its first line and the start of what follows."""
    with path.open("rb") as file:
        return file.read(_LONGEST_LINE)


def _what_it_is(path: Path, head: bytes) -> str:
    if not head:
        return "is empty"
    if path.suffix == ".py":
        return f"is a Python file; what it builds is {path.name}:FUNCTION"
    if head.isascii() and all(line.isprintable() for line in head.decode().expandtabs().splitlines()):
        return "is a text file, not a checkpoint"
    return f"its first bytes ({head[:8].hex(' ')}) are of no kind of checkpoint"


def _read_zip(path: Path, budget: Budget) -> Container:
    archive = Archive(path, "zip archive", budget)
    prefix = prefix_of(archive)
    if prefix is not None and is_torchscript(archive, prefix):
        return _container(path, "TorchScript", _read_torchscript(archive, prefix), archive.metadata)
    if prefix is not None:
        return _container(path, "torch", read_torch_zip(archive, prefix), archive.metadata)
    if archive.names and all(name.endswith(".npy") for name in archive.names):
        from parity.porting.formats.npz import read_npz

        return _container(path, "npz", read_npz(archive), archive.metadata)
    if _KERAS_WEIGHTS in archive.names:
        container = _container(path, KERAS, read_hdf5(archive.part(_KERAS_WEIGHTS), budget))
        config = parse_json(archive.read(CONFIG).decode(), entries=MOST_ENTRIES)
        return replace(container, sidecars={CONFIG: config})
    raise WeightsError(
        f"{path}: a zip archive of {len(archive.names)} files, neither of torch.save (no data.pkl) nor"
        " of numpy.savez (.npy files alone); unpack it if the checkpoint is inside"
    )


def _container(
    path: Path, kind: str, flat: Flat, metadata: Mapping[str, str] | None = None
) -> Container:
    return Container(path, (path,), kind, flat.tensors, flat.objects, dict(metadata or {}))


def _read_torchscript(archive: Archive, prefix: str) -> Flat:
    """Read the attributes of a module of ``torch.jit.save`` by their dotted names; it is never run.

    Raises:
        WeightsError: the archive is damaged, or of a version that keeps its tensors elsewhere.
    """
    if f"{prefix}data.pkl" not in archive.names:
        raise WeightsError(
            f"{archive.path}: TorchScript older than PyTorch 1.3; save it with a newer one"
        )
    return read_torch_zip(archive, prefix, torchscript=True)
