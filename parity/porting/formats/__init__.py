"""Checkpoint files of every kind, read lazily and written as a stream, without the frameworks.

The first bytes of a file determine its kind, never its name. Nothing in a file is executed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.distributed import is_distributed, read_distributed
from parity.porting.formats.equinox import write_equinox
from parity.porting.formats.hdf5_writer import write_hdf5
from parity.porting.formats.msgpack_writer import write_msgpack
from parity.porting.formats.npz import write_npz
from parity.porting.formats.sniff import read_file
from parity.porting.formats.suffixes import INDEX
from parity.porting.formats.tensorstore import find_last, is_tensorstore, read_tensorstore
from parity.porting.formats.torch_writer import write_torch
from parity.porting.formats.weights_folder import (
    find_weights,
    index_of,
    read_shards,
    read_sidecars,
    with_task,
)
from vit_config.errors import MissingFileError

__all__ = [
    "Container",
    "Stored",
    "open_container",
    "write_equinox",
    "write_hdf5",
    "write_msgpack",
    "write_npz",
    "write_torch",
]


def open_container(path: str | Path) -> Container:
    """Open a checkpoint; each tensor is read when it is loaded.

    Args:
        path: a file, a folder as Hugging Face, timm, OpenCLIP or the Trainer write it, a checkpoint of
            Orbax, Big Vision or torch.distributed, or a run's folder with Flax's checkpoints.

    Raises:
        MissingFileError: there is no such path, no weights in the folder, or a shard is missing.
        WeightsError: the file is damaged, truncated, of an unsupported kind, or holds something that no
            checkpoint needs. Loading a tensor raises it too.
    """
    path = Path(path)
    with guarded(path, "checkpoint"):
        if (last := find_last(path)) is not None:
            return replace(read_tensorstore(last), path=path)
        if path.is_dir():
            opened = _open_folder(path)
            return replace(opened, path=path, sidecars={**read_sidecars(path), **opened.sidecars})
        if not path.is_file():
            raise MissingFileError(f"{path}: no such file or folder; give the path of a checkpoint")
        if index := path if INDEX.fullmatch(path.name) else index_of(path):
            container = read_shards(index, read_file)
        else:
            container = read_file(path)
        return replace(container, sidecars={**read_sidecars(path.parent), **container.sidecars})


def _open_folder(folder: Path) -> Container:
    from parity.porting.formats.orbax import find_checkpoint, read_orbax

    if checkpoint := find_checkpoint(folder):
        return read_orbax(checkpoint)
    if is_distributed(folder):
        return read_distributed(folder)
    if is_tensorstore(folder):
        return read_tensorstore(folder)
    if newest := _find_step(folder):
        path, note = newest
        container = read_file(path)
        return replace(container, kind=f"{container.kind}{note}")
    weights = find_weights(folder)
    if index := weights if weights.suffix == ".json" else index_of(weights):
        return read_shards(index, read_file)
    return with_task(folder, read_file(weights), read_file)


def _find_step(folder: Path) -> tuple[Path, str] | None:
    """Find the newest file of Flax's ``save_checkpoint`` in a run's folder.

    Returns:
        The file, and its step in words; None if there is none.
    """
    steps = {
        int(match[1]): each
        for each in folder.iterdir()
        if (match := re.fullmatch(r"checkpoint_(\d{1,12})", each.name)) and each.is_file()
    }
    if not steps:
        return None
    newest = max(steps)
    return steps[newest], f" (step {newest}, the newest of {len(steps)})"
