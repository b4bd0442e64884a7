"""Reader, without PyTorch, of ``torch.save`` files before PyTorch 1.6: pickles, then the storages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.formats.budget import Budget
from parity.porting.formats.flatten import Flat
from parity.porting.formats.inert import Refused, describe_value
from parity.porting.formats.opcodes import Machine
from parity.porting.formats.torch_types import Storage, storage_dtype
from vit_config.errors import WeightsError
from vit_config.files.stored import guarded

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


def read_torch_legacy(path: Path, budget: Budget) -> Flat:
    """Read everything in the file except the tensors' bytes.

    Raises:
        WeightsError: the file is of another kind, is truncated, or holds something that no checkpoint
            needs.
    """
    size = path.stat().st_size
    storages = LegacyStorages(path)
    with path.open("rb") as file:
        machine = Machine(file, size, storages, budget)
        if machine.load() != _MAGIC:
            raise WeightsError(
                f"{path}: is a Python pickle but not of torch.save; save its tensors as safetensors"
            )
        if (version := machine.load()) != _VERSION:
            raise WeightsError(
                f"{path}: version {describe_value(version)} of the old torch format, expected {_VERSION}"
            )
        machine.load()  # facts about the machine that wrote it; storages do not depend on its byte order
        root = machine.load()
        keys = machine.load()
        if not isinstance(keys, list):
            raise TypeError("no list of storages")
        end = storages.place(keys, file, size)
    if end != size:
        raise WeightsError(
            f"{path}: {size} bytes where its storages end at byte {end}; it is not one whole file"
        )
    flat = Flat(".", budget)
    flat.add("", root)
    return flat


class LegacyStorages:
    """The storages of the file; their offsets are known only after the pickles are read."""

    def __init__(self, path: Path):
        self._path = path
        self._known: dict[str, tuple[Storage, int]] = {}
        self._starts: dict[str, int] = {}
        self._views: dict[str, Storage] = {}

    def __call__(self, key: Any) -> Any:
        """Return a storage, whose offset is not known yet.

        Args:
            key: ("storage", class, name, device, number of elements, view) or ("module", class, ...).
        """
        kind, *rest = (each.decode() if isinstance(each, bytes) else each for each in key)
        if kind == "module":
            return rest[0]
        cls, name, _, count, view, *_ = (*rest, None)
        if kind != "storage" or not isinstance(name, str) or type(count) is not int or count < 0:
            raise TypeError("something outside of the pickle that is not a storage")
        dtype = storage_dtype(cls)
        if isinstance(dtype, Refused):
            return dtype
        if name not in self._known:
            nbytes = count * dtype.itemsize
            if nbytes > self._path.stat().st_size:
                raise WeightsError(
                    f"{self._path}: truncated, it lacks part of a storage of {nbytes} bytes"
                )
            self._known[name] = Storage(dtype, nbytes, self._reader(name, 0)), count
        storage, known = self._known[name]
        if storage.dtype != dtype or known != count:
            raise TypeError(f"storage {name} of two types or lengths")
        return storage if view is None else self._view(name, storage, view)

    def place(self, keys: list[Any], file: Any, size: int) -> int:
        """Find the offset of every storage after the pickles.

        Returns:
            The offset at which the last storage ends, in bytes.
        """
        end = file.tell()
        for key in keys:
            if not isinstance(key, str) or key not in self._known or key in self._starts:
                raise ValueError(
                    f"storage {describe_value(key)} is listed but not used, or listed twice"
                )
            storage, count = self._known[key]
            file.seek(end)
            announced = int.from_bytes(file.read(8), "little")
            self._starts[key] = end + 8
            end += 8 + storage.nbytes
            if end > size:
                raise WeightsError(
                    f"{self._path}: truncated, {size} bytes where storage {key} alone ends at byte"
                    f" {end}; copy it again"
                )
            if announced != count:
                raise ValueError(f"storage {key} has {announced} elements, expected {count}")
        if missing := self._known.keys() - self._starts.keys():
            raise ValueError(f"storage {min(missing)} is used but not listed")
        return end

    def _view(self, name: str, whole: Storage, view: Any) -> Storage:
        """Return a part of a storage, which old versions wrote: (name, offset, length) in elements."""
        key, offset, length = view
        begin, nbytes = offset * whole.dtype.itemsize, length * whole.dtype.itemsize
        if not isinstance(key, str) or type(offset) is not int or type(length) is not int:
            raise TypeError(f"a part of storage {name} without a place")
        if min(offset, length) < 0 or begin + nbytes > whole.nbytes:
            raise ValueError(f"a part of storage {name} that lies outside of it")
        return self._views.setdefault(key, Storage(whole.dtype, nbytes, self._reader(name, begin)))

    def _reader(self, name: str, base: int):
        def read(begin: int, end: int) -> np.ndarray:
            with guarded(self._path, "torch file"), self._path.open("rb") as file:
                file.seek(self._starts[name] + base + begin)
                content = np.empty(end - begin, np.uint8)
                if file.readinto(content.data) != content.size:
                    raise WeightsError(
                        f"{self._path}: storage {name} ends too early; copy the file again"
                    )
                return content

        return read
