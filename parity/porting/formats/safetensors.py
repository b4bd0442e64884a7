"""Safetensors files, sealed or anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.containers.base import Container, Progress, Stored
from vit_config.atomic import atomic_file
from vit_config.safetensors_header import described, read_file_header
from vit_config.safetensors_stream import Late, ignore, write_stream
from vit_config.seal import is_sealed, sealed_tensors


def read_safetensors(path: Path) -> Container:
    """A safetensors file; of a sealed one the seal is checked now, a tensor's digest when it is loaded.

    Raises:
        WeightsError: truncated, a header that contradicts itself, or a broken seal.
    """
    header = read_file_header(path)
    read = sealed_tensors if is_sealed(header) else described
    return Container(path, (path,), "safetensors", read(header, path), metadata=header.metadata)


def write_safetensors(
    path: str | Path,
    tensors: Mapping[str, Stored],
    metadata: Mapping[str, str],
    *,
    sealed: bool,
    progress: Progress = ignore,
    force: bool = False,
    late: Late | None = None,
) -> None:
    """Write a safetensors file, one tensor in memory at a time, whole or not at all.

    Args:
        metadata: ``__metadata__`` of the header.
        sealed: add digests and the seal over them and every other ``vit.`` entry of the metadata.
        progress: called with the number of bytes just written.
        force: replace a file that exists.
        late: what is known of the metadata when every tensor is written.

    Raises:
        ConfigError: the file exists, is a folder, or cannot hold these types or names.
        MissingFileError: the folder to write in does not exist.
        WeightsError: a tensor that cannot be read.
    """
    with atomic_file(path, force=force) as file:
        write_stream(file, tensors, metadata, sealed=sealed, progress=progress, late=late)
