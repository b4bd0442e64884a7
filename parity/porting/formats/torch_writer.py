"""Writer, without PyTorch, of files that ``torch.load`` reads, even with ``weights_only=True``."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Mapping
from typing import BinaryIO

from parity.porting.formats.base import Progress, Stored
from parity.porting.formats.comment import pack
from parity.porting.formats.torch_types import DTYPES, STORAGES
from vit_config.errors import ConfigError
from vit_config.files.safetensors_stream import Late, ignore, write_tensor

_ALIGNMENT = 64
_CLASSES = {dtype: name for name, dtype in STORAGES.items() if name != "UntypedStorage"}


def write_torch(
    file: BinaryIO,
    tensors: Mapping[str, Stored],
    progress: Progress = ignore,
    *,
    wrapper: str = "",
    metadata: Mapping[str, str] | None = None,
    late: Late = dict,
) -> None:
    """Write a state dict to an empty file as ``torch.save`` does, one tensor in memory at a time.

    Args:
        progress: called with the number of bytes just written.
        wrapper: the key of a dictionary around the state dict; empty for none.
        metadata: the file's metadata, see `parity.porting.formats.comment`.
        late: returns the metadata that are known only when every tensor is written.

    Raises:
        ConfigError: PyTorch lacks one of the types, or there are too many metadata.
        WeightsError: a tensor cannot be read.
    """
    content = state_dict_pickle(tensors, wrapper)
    with zipfile.ZipFile(file, "w") as archive:
        pack(metadata or {})  # raises before anything is written if the metadata are too long
        _add(archive, file, "data.pkl", content)
        _add(archive, file, ".format_version", b"1")
        _add(archive, file, ".storage_alignment", str(_ALIGNMENT).encode())
        _add(archive, file, "byteorder", b"little")
        for index, (name, stored) in enumerate(tensors.items()):
            with _open(archive, file, f"data/{index}", stored.nbytes) as out:
                write_tensor(out.write, name, stored, progress)
        _add(archive, file, "version", b"3\n")
        _add(archive, file, ".data/serialization_id", _identity(archive))
        archive.comment = pack({**metadata, **late()}) if metadata else b""


def state_dict_pickle(tensors: Mapping[str, Stored], wrapper: str = "") -> bytes:
    """Return the pickle of an OrderedDict of tensors, in the opcodes of PyTorch's own files.

    Raises:
        ConfigError: PyTorch lacks one of the types.
    """
    outside = b"}" + _text(wrapper) if wrapper else b""
    parts = [b"\x80\x02", outside, _ORDERED_DICT, b"("]
    for index, (name, stored) in enumerate(tensors.items()):
        parts += [_text(name), _tensor(name, index, stored)]
    return b"".join([*parts, b"us." if wrapper else b"u."])


_ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def _tensor(name: str, index: int, stored: Stored) -> bytes:
    """Return the opcodes of a call that rebuilds a tensor from a storage."""
    kind = stored.dtype.name
    if kind not in DTYPES:
        raise ConfigError(f"{name}: PyTorch has no type {kind}; convert it to another")
    strides = [math.prod(stored.shape[axis + 1 :]) for axis in range(len(stored.shape))]
    count, tail = math.prod(stored.shape), b""
    function, storage = b"ctorch._utils\n_rebuild_tensor_v2\n", f"ctorch\n{_CLASSES.get(kind)}\n"
    if kind not in _CLASSES:  # the newer types have no storage class of their own
        function, storage = b"ctorch._utils\n_rebuild_tensor_v3\n", "ctorch.storage\nUntypedStorage\n"
        count, tail = stored.nbytes, f"ctorch\n{kind}\n".encode()
    place = (_text("storage"), storage.encode(), _text(str(index)), _text("cpu"), _number(count))
    sizes = (_number(0), _numbers(stored.shape), _numbers(strides))
    return b"".join([function, b"((", *place, b"tQ", *sizes, b"\x89", _ORDERED_DICT, tail, b"tR"])


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def _number(number: int) -> bytes:
    if number < 2**31:
        return b"J" + number.to_bytes(4, "little")
    return b"\x8a\x09" + number.to_bytes(9, "little")


def _numbers(numbers) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def _add(archive: zipfile.ZipFile, file: BinaryIO, name: str, content: bytes) -> None:
    with _open(archive, file, name, len(content)) as out:
        out.write(content)


def _open(archive: zipfile.ZipFile, file: BinaryIO, name: str, size: int):
    """Open a member for writing at a multiple of 64 bytes, so that PyTorch can map it into memory."""
    member = zipfile.ZipInfo(f"archive/{name}")
    member.file_size = size
    large = size > zipfile.ZIP64_LIMIT
    start = file.tell() + 30 + len(member.filename) + (20 if large else 0) + 4
    padding = -start % _ALIGNMENT
    member.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return archive.open(member, "w", force_zip64=large)


def _identity(archive: zipfile.ZipFile) -> bytes:
    """Return forty digits that depend only on the members' names and contents."""
    members = "".join(f"{member.filename}\0{member.CRC}\0" for member in archive.infolist())
    return f"{int.from_bytes(hashlib.sha256(members.encode()).digest()[:16], 'little'):040d}".encode()
