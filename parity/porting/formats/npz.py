"""Reader and writer of numpy's .npz archives, in which Google publishes Vision Transformers."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from parity.porting.formats.archive import Archive
from parity.porting.formats.base import Progress, Stored
from parity.porting.formats.comment import pack
from parity.porting.formats.flatten import Flat
from parity.porting.formats.numpy_pickles import ML_TYPES
from vit_config.errors import ConfigError, WeightsError
from vit_config.files.safetensors_stream import Late, ignore, write_tensor
from vit_config.files.stored import checked_shape

_LONGEST_HEADER = 70_000
_LONGEST_TEXT = 2**20
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def read_npz(archive: Archive) -> Flat:
    """Open the arrays of an archive without reading them; arrays of text are read as objects.

    Raises:
        WeightsError: the archive is damaged, or has an array of Python objects or of a type that no
            model has.
    """
    flat = Flat("/", archive.budget)
    for member in archive.names:
        name = member.removesuffix(".npy")
        shape, fortran, dtype, start = _header(archive, member)
        if dtype.kind in "SU" and archive.size(member) <= _LONGEST_TEXT:
            archive.budget.objects(archive.size(member) + 64 * math.prod(shape))
            flat.add(name, _load(archive, member, start, dtype, shape, fortran).tolist())
        else:
            flat.add(name, _stored(archive, member, start, dtype, shape, fortran))
    return flat


def write_npz(
    file: BinaryIO,
    tensors: Mapping[str, Stored],
    progress: Progress = ignore,
    *,
    metadata: Mapping[str, str] | None = None,
    late: Late = dict,
) -> None:
    """Write an uncompressed .npz archive to an empty file, one tensor in memory at a time.

    bfloat16 is written as two raw bytes (``V2``), as Google does.

    Args:
        progress: called with the number of bytes just written.
        metadata: the file's metadata, see `parity.porting.formats.comment`.
        late: returns the metadata that are known only when every tensor is written.

    Raises:
        ConfigError: the file cannot hold these types or the metadata.
        WeightsError: a tensor cannot be read.
    """
    with zipfile.ZipFile(file, "w") as archive:
        pack(metadata or {})  # raises before anything is written if the metadata are too long
        for name, stored in tensors.items():
            header = npy_header(name, stored)
            member = zipfile.ZipInfo(f"{name}.npy")
            member.file_size = len(header) + stored.nbytes  # zipfile decides on 64 bits by it
            with archive.open(member, "w", force_zip64=member.file_size > zipfile.ZIP64_LIMIT) as out:
                out.write(header)
                write_tensor(out.write, name, stored, progress)
        archive.comment = pack({**metadata, **late()}) if metadata else b""


def npy_header(name: str, stored: Stored) -> bytes:
    """Return what stands before an array's values. ConfigError: it cannot say this type."""
    dtype = stored.dtype
    nameless = dtype.name in ML_TYPES and dtype != _BFLOAT16  # float8, which numpy could not read again
    if nameless or (dtype.kind not in "biufc" and dtype != _BFLOAT16):
        raise ConfigError(
            f"{name}: numpy's files cannot hold {dtype}; convert it to another type, or to safetensors"
        )
    header = io.BytesIO()
    description = "|V2" if dtype == _BFLOAT16 else np.lib.format.dtype_to_descr(dtype)
    content = {"descr": description, "fortran_order": False, "shape": stored.shape}
    np.lib.format.write_array_header_1_0(header, content)
    return header.getvalue()


def _header(archive: Archive, member: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return shape, whether in Fortran's order, type, and the offset of the values in the member."""
    stream = io.BytesIO(archive.head(member, _LONGEST_HEADER))
    shape, fortran, dtype = array_header(stream, member)
    start = stream.tell()
    expected = start + math.prod(shape) * dtype.itemsize
    if archive.size(member) != expected:
        raise WeightsError(
            f"{archive.path}: {member} has {archive.size(member)} bytes, its shape {shape} of {dtype}"
            f" takes {expected}; copy the file again"
        )
    return shape, fortran, dtype, start


def array_header(stream: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of an array; return its shape, whether in Fortran's order, and its type.

    Raises:
        WeightsError: it holds Python objects or is of a type that no model has.
        ValueError: it is damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers written by Python 2
        version = np.lib.format.read_magic(stream)
        read: Any = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise WeightsError(f"{name}: version {version} of the .npy format is not read")
        shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise WeightsError(f"{name} holds Python objects, which can run code when read; it is not read")
    if dtype == np.dtype("V2"):
        dtype = _BFLOAT16
    if dtype.kind not in "biufcSU" and dtype != _BFLOAT16:
        raise WeightsError(f"{name} has type {dtype}, which no model has")
    return checked_shape(shape, dtype.itemsize), fortran, dtype


def _stored(
    archive: Archive, member: str, start: int, dtype: np.dtype, shape: Any, fortran: bool
) -> Stored:
    return Stored(
        shape, dtype.newbyteorder("="), lambda: _load(archive, member, start, dtype, shape, fortran)
    )


def _load(
    archive: Archive, member: str, start: int, dtype: np.dtype, shape: tuple[int, ...], fortran: bool
) -> np.ndarray:
    values = archive.range(member, start, archive.size(member)).view(dtype)
    array = values.reshape(shape[::-1]).T if fortran else values.reshape(shape)
    return np.asarray(array, dtype.newbyteorder("="), order="C")
