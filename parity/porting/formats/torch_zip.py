"""Reader, without PyTorch, of ``torch.save`` files: a zip archive with one member per storage."""

from __future__ import annotations

import io
from typing import Any

from parity.porting.formats.archive import Archive
from parity.porting.formats.flatten import Flat
from parity.porting.formats.inert import Refused
from parity.porting.formats.opcodes import Machine
from parity.porting.formats.torch_types import Storage, storage_dtype
from vit_config.errors import WeightsError

_LARGEST_PICKLE = 2**29


def prefix_of(archive: Archive) -> str | None:
    """Return the folder in the archive that holds the pickle, with its slash; None if there is none."""
    pickles = [name for name in archive.names if name == "data.pkl" or name.endswith("/data.pkl")]
    shallow = [name for name in pickles if name.count("/") <= 1]
    return shallow[0].removesuffix("data.pkl") if len(shallow) == 1 else None


def is_torchscript(archive: Archive, prefix: str) -> bool:
    """Return whether the archive holds a program that ``torch.jit.save`` wrote."""
    return f"{prefix}constants.pkl" in archive.names or f"{prefix}model.json" in archive.names


def read_torch_zip(archive: Archive, prefix: str, *, torchscript: bool = False) -> Flat:
    """Read everything in the archive except the tensors' bytes.

    Raises:
        WeightsError: the archive is damaged, or holds something that no checkpoint needs.
    """
    root = read_pickle(archive, prefix, torchscript=torchscript)
    flat = Flat(".", archive.budget)
    flat.add("", root)
    return flat


def read_pickle(archive: Archive, prefix: str, *, torchscript: bool = False) -> Any:
    """Read the object of ``data.pkl`` as inert data."""
    name = f"{prefix}data.pkl"
    if archive.size(name) > _LARGEST_PICKLE:
        raise WeightsError(
            f"{archive.path}: {name} has {archive.size(name)} bytes; no checkpoint needs so many"
        )
    content = archive.read(name)
    storages = ZipStorages(archive, prefix)
    machine = Machine(
        io.BytesIO(content), len(content), storages, archive.budget, torchscript=torchscript
    )
    return machine.load()


class ZipStorages:
    """The storages of an archive, by their persistent ids in the pickle."""

    def __init__(self, archive: Archive, prefix: str):
        self._archive = archive
        self._prefix = prefix
        self._known: dict[str, Storage] = {}
        order = f"{prefix}byteorder"
        self._swapped = order in archive.names and archive.head(order, 16).strip() == b"big"

    def __call__(self, key: Any) -> Storage | Refused:
        """Return a storage without reading its bytes.

        Args:
            key: ("storage", class, name, device, number of elements).
        """
        kind, cls, name, _, count = key
        if kind != "storage" or not isinstance(name, str) or type(count) is not int:
            raise TypeError("something outside of the pickle that is not a storage")
        dtype = storage_dtype(cls)
        if isinstance(dtype, Refused):
            return dtype
        member = f"{self._prefix}data/{name}"
        size = self._archive.size(member)
        if count != size // dtype.itemsize:
            raise WeightsError(
                f"{self._archive.path}: {member} has {size} bytes, expected {count} of {dtype}, which"
                f" take {count * dtype.itemsize}; copy the file again"
            )
        known = self._known.get(name)
        if known is None or known.dtype != dtype:
            known = Storage(
                dtype, size, lambda begin, end: self._archive.range(member, begin, end), self._swapped
            )
            self._known[name] = known
        return known
