"""The project's weights file: safetensors that describe their model and detect damage.

It is one safetensors file, with parameters under their timm-style names in PyTorch's layout. The
header's metadata holds ``vit.format`` (the version), ``vit.schema`` and ``vit.preprocess`` (JSON),
``vit.dialect`` (whose spelling the names have: here ``parity``), ``vit.provenance`` (JSON, the
origin of the weights), ``vit.digests`` and ``vit.seal`` (see `vit_config.files.seal`). Both twins
read it without the other's framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.atomic import atomic_file, check_writable, write_atomically
from vit_config.files.matching import Described, match_arrays
from vit_config.files.safetensors_header import FileHeader, read_entry, read_file_header
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import Seal, check_seal, damage_error
from vit_config.files.stored import Stored
from vit_config.images.preprocess import Preprocess
from vit_config.schema import ViTConfig

__all__ = [
    "DIALECT",
    "Described",
    "Weights",
    "check_writable",
    "match_arrays",
    "read_weights",
    "write_atomically",
    "write_weights",
]

DIALECT = "parity"
"""``vit.dialect`` of the project's own files."""
TEXT_TOWER = "text."
"""Prefix of the tensors of a text tower beside the model, which are not read here."""

_KEYS = ("vit.format", "vit.schema", "vit.preprocess", "vit.dialect", "vit.provenance", "vit.digests")


class Weights(NamedTuple):
    """The content of a weights file."""

    config: ViTConfig
    preprocess: Preprocess | None
    """None if nobody knows how the images were prepared."""
    arrays: dict[str, np.ndarray]
    """Parameters by timm-style name, in PyTorch's layout."""


def write_weights(
    path: str | Path,
    config: ViTConfig,
    arrays: Mapping[str, np.ndarray],
    preprocess: Preprocess | None = None,
    provenance: Sequence[Any] = (),
    *,
    force: bool = True,
) -> None:
    """Write a weights file; the path holds either the whole new file or its old content.

    Args:
        provenance: origin of the weights, oldest first; JSON values.
        force: replace a file that exists.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: the path is a folder, or exists and `force` is not set; or a tensor has a type that
            safetensors lacks.
    """
    metadata = {
        "vit.schema": config.to_json(),
        "vit.preprocess": preprocess.to_json() if preprocess else "null",
        "vit.dialect": DIALECT,
        "vit.provenance": json.dumps(list(provenance), ensure_ascii=False),
    }
    tensors = {name: Stored.of(array) for name, array in arrays.items()}
    with atomic_file(path, force=force) as file:
        write_stream(file, tensors, metadata, sealed=True)


def read_weights(path: str | Path) -> Weights:
    """Read a weights file and check every byte of it.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: the file is not a weights file of this project, truncated, or damaged (the
            tensor is named).
    """
    path = Path(path)
    header, seal = _read(path)
    entries = {name: each for name, each in header.entries.items() if not name.startswith(TEXT_TOWER)}
    arrays = {name: read_entry(path, name, entry) for name, entry in entries.items()}
    if wrong := [name for name, array in arrays.items() if not seal.fits(name, array)]:
        raise damage_error(path, *wrong)
    return Weights(*_meaning(path, header.metadata), arrays)


def _read(path: Path) -> tuple[FileHeader, Seal]:
    """Read the header of a weights file, and its seal, which must be undamaged."""
    if path.is_dir():
        raise WeightsError(f"{path}: is a folder; give the path of a .safetensors file")
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give the path of a .safetensors file")
    _refuse_other_formats(path)
    header = read_file_header(path)
    if not any(key.startswith("vit.") for key in header.metadata):
        raise WeightsError(
            f"{path}: safetensors without {', '.join((*_KEYS, 'vit.seal'))} in its header; expected"
            " a file written by parity.save; `parity convert` makes one of it"
        )
    seal = check_seal(path, header)
    if missing := [key for key in _KEYS if key not in header.metadata]:
        raise WeightsError(
            f"{path}: no {', '.join(missing)} in its header; expected a file of parity.save"
        )
    if (dialect := header.metadata["vit.dialect"]) != DIALECT:
        raise WeightsError(
            f"{path}: its parameters have the names of {dialect}, not of {DIALECT}; read it with"
            " parity.load, or `parity convert` it"
        )
    return header, seal


def _meaning(path: Path, metadata: Mapping[str, str]) -> tuple[ViTConfig, Preprocess | None]:
    preprocess = None
    if metadata["vit.preprocess"] != "null":
        preprocess = Preprocess.from_json(metadata["vit.preprocess"], where=f"{path}: vit.preprocess")
    return ViTConfig.from_json(metadata["vit.schema"], where=f"{path}: vit.schema"), preprocess


def _refuse_other_formats(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(16)
    if head[8:9] == b"{":  # safetensors; its first 8 bytes, a length, may look like anything
        return
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        raise WeightsError(
            f"{path}: is a Python pickle, which can run code when read; expected safetensors"
        )
    if head[:2] == b"PK":
        raise WeightsError(f"{path}: is a zip archive (a torch.save or .npz file); expected safetensors")
    raise WeightsError(
        f"{path}: is not a safetensors file (its header does not start with '{{');"
        " expected a file written by parity.save"
    )
