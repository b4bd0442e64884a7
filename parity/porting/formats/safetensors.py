"""Reader and writer of safetensors files, with or without a seal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.porting.formats.base import Container, Progress, Stored
from parity.porting.formats.flatten import check_names
from vit_config.errors import naming
from vit_config.files.atomic import Check, accept, atomic_file
from vit_config.files.safetensors_header import read_file_header
from vit_config.files.safetensors_stream import Late, ignore, write_stream
from vit_config.files.seal import tensors_of


def read_safetensors(path: Path) -> Container:
    """Open a safetensors file; a seal is checked now, a sealed tensor's digest when it is loaded.

    Raises:
        WeightsError: the file is truncated, its header contradicts itself, or its seal is broken.
    """
    header = read_file_header(path)
    with naming(path):
        check_names(header.entries)
    return Container(path, (path,), "safetensors", tensors_of(header, path), metadata=header.metadata)


def write_safetensors(
    path: str | Path,
    tensors: Mapping[str, Stored],
    metadata: Mapping[str, str],
    *,
    sealed: bool,
    progress: Progress = ignore,
    force: bool = False,
    check: Check = accept,
    late: Late | None = None,
) -> None:
    """Write a safetensors file, one tensor in memory at a time, whole or not at all.

    Args:
        metadata: ``__metadata__`` of the header.
        sealed: add digests and the seal over them and every other ``vit.`` entry of the metadata.
        progress: called with the number of bytes just written.
        force: replace an existing file.
        check: called with the path of the finished file before it gets its name.
        late: returns the metadata that are known only when every tensor is written.

    Raises:
        ConfigError: the file exists, is a folder, or cannot hold these types or names.
        MissingFileError: the folder to write in does not exist.
        WeightsError: a tensor cannot be read.
    """
    with atomic_file(path, force=force, check=check) as file:
        write_stream(file, tensors, metadata, sealed=sealed, progress=progress, late=late)
