"""Rewrites the files of a host with some tensors replaced.

Safetensors are copied and overwritten in place, so that headers, indices and all other bytes are kept.
Archives of numpy are copied member by member. tensorstore overwrites Orbax's arrays. A file of
``torch.save`` is loaded by PyTorch, with nothing executed, and saved again.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.formats.base import Container, Stored
from parity.porting.formats.budget import budget_of
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file
from vit_config.files.stored import Extent

Tensors = Mapping[str, Stored]


def check_kind(host: Container) -> None:
    """Refuse a host of a kind that cannot be rewritten.

    Raises:
        ConfigError: with the reason.
    """
    if "vit.seal" in host.metadata:
        raise ConfigError(
            f"{host.path}: is a file of this project's own, sealed, and no host; convert the tower into"
            " its dialect"
        )
    if not host.kind.startswith(("safetensors", "npz", "torch", "orbax")) or "legacy" in host.kind:
        raise ConfigError(
            f"{host.path}: a host of the kind {host.kind} is not written again; save it as safetensors,"
            " npz, a zip file of torch.save or an Orbax checkpoint first"
        )


def files_holding(host: Container, names: Iterable[str]) -> list[Path]:
    """Return the files that hold the named tensors."""
    if not host.kind.startswith("safetensors"):
        return list(host.files)
    paths = (_extent(host, name).path for name in names)
    return list(dict.fromkeys(paths))


def rewrite(host: Container, copy: Path, tensors: Tensors) -> None:
    """Put tensors into a copy of a host.

    Args:
        host: the host as it was read.
        copy: a copy of the host's file or folder; changed in place.
        tensors: new tensors by the host's names, with its types and shapes.
    """
    if host.kind.startswith("safetensors"):
        _safetensors(host, copy, tensors)
    elif host.kind.startswith("npz"):
        _npz(_in_copy(host, host.files[0], copy), tensors)
    elif host.kind.startswith("torch"):
        _torch(_in_copy(host, host.files[0], copy), tensors)
    else:
        _orbax(_in_copy(host, host.files[0], copy), tensors)


def _in_copy(host: Container, path: Path, copy: Path) -> Path:
    """Return the path in the copy of one of the host's files."""
    root = host.path
    return copy if path == root else copy / path.relative_to(root)


def _extent(host: Container, name: str) -> Extent:
    load = host.tensors[name].load
    if not isinstance(load, Extent):
        raise ConfigError(f"{host.path}: {name} is not stored as it is read, and is not put back so")
    return load


def _safetensors(host: Container, copy: Path, tensors: Tensors) -> None:
    for path in files_holding(host, tensors):
        with _in_copy(host, path, copy).open("r+b") as file:
            for name, stored in tensors.items():
                place = _extent(host, name)
                if place.path == path:
                    file.seek(place.begin)
                    file.write(np.ascontiguousarray(stored.load()).view(np.uint8).data)


def _npz(path: Path, tensors: Tensors) -> None:
    with (
        atomic_file(path, force=True) as written,
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(written, "w") as out,
    ):
        for member in source.infolist():
            stored = tensors.get(member.filename.removesuffix(".npy"))
            if stored is None:
                out.writestr(member, source.read(member))
                continue
            with out.open(member.filename, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, stored.load(), allow_pickle=False)


def _torch(path: Path, tensors: Tensors) -> None:
    try:
        import torch
    except ImportError:
        raise ConfigError(f"{path}: a file of torch.save, which takes PyTorch to write again") from None
    from vit_torch.weights import from_numpy

    content = torch.load(path, map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name, tensor in _leaves(content, ""):
            if name in tensors:
                tensor.copy_(from_numpy(tensors[name].load()))
    with atomic_file(path, force=True) as file:
        torch.save(content, file)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in nested dicts and lists by flat name."""
    if hasattr(value, "data_ptr"):
        yield name, value
        return
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}" if name else str(key))


def _orbax(item: Path, tensors: Tensors) -> None:
    try:
        import tensorstore
    except ImportError as error:
        raise ConfigError(f"{item}: an Orbax checkpoint, which takes orbax to write ({error})") from None
    joint = (item / "manifest.ocdbt").is_file()
    for name, stored in tensors.items():
        key = name.replace("/", ".")
        store: dict[str, Any] = {"driver": "file", "path": f"{item.absolute()}/{key}/"}
        if joint:
            store = {"driver": "ocdbt", "base": f"file://{item.absolute()}/", "path": f"{key}/"}
        array = _open(tensorstore, store)
        array.write(stored.load()).result()


def _open(tensorstore: Any, store: dict[str, Any]) -> Any:
    """Open an array of either version of zarr."""
    try:
        return tensorstore.open({"driver": "zarr", "kvstore": store}, open=True).result()
    except ValueError:
        return tensorstore.open({"driver": "zarr3", "kvstore": store}, open=True).result()


def files_of(host: Container) -> list[Path]:
    """List the files to copy of a host: its one file, or all in its folder.

    Raises:
        ConfigError: one is a device or a pipe, or leads to a folder or out of the host's own.
        WeightsError: they are nearly all holes, or together more than their bytes on the disk allow.
    """
    if not host.path.is_dir():
        return [host.path]
    root, own = host.path, host.path.resolve()
    roots = (own, own.parent.parent / "blobs") if own.parent.name == "snapshots" else (own,)
    known, files = {*host.files}, list[Path]()
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for path in (Path(folder, name) for name in (*links, *names)):
            if path.is_dir() or not path.is_file():
                what = "is a link to a folder or to nothing, a device or a pipe"
            elif path not in known and not any(map(path.resolve().is_relative_to, roots)):
                what = "is a link to a file that is not below it"
            else:
                files.append(path)
                continue
            raise ConfigError(
                f"{root}: {path.relative_to(root)} {what}; remove it, or put the file there"
            )
    budget = budget_of(root, files)
    for path in files:
        budget.copies(path.stat().st_size)
    return files


def copy_host(host: Path, to: Path, files: Iterable[Path]) -> None:
    """Copy a host's files; what links lead to, as files."""
    for path in files:
        copy = to if path == host else to / path.relative_to(host)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(path, copy)
        except OSError as error:  # of which the second name is that of the file that is written
            raise OSError(error.errno, error.strerror, error.filename2 or error.filename) from None
