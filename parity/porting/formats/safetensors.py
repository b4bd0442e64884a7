"""Reader of safetensors files, with or without a seal."""

from __future__ import annotations

from pathlib import Path

from parity.porting.formats.base import Container
from parity.porting.formats.flatten import check_names
from vit_config.errors import naming
from vit_config.files.safetensors_header import read_file_header
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
