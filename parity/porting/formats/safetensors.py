"""Safetensors files, sealed or anybody's."""

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
    """A safetensors file; of a sealed one the seal is checked now, a tensor's digest when it is loaded.

    Raises:
        WeightsError: truncated, a header that contradicts itself, or a broken seal.
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
        force: replace a file that exists.
        check: is given the whole file before it gets its name.
        late: what is known of the metadata when every tensor is written.

    Raises:
        ConfigError: the file exists, is a folder, or cannot hold these types or names.
        MissingFileError: the folder to write in does not exist.
        WeightsError: a tensor that cannot be read.
    """
    with atomic_file(path, force=force, check=check) as file:
        write_stream(file, tensors, metadata, sealed=sealed, progress=progress, late=late)
