"""The project's weights file: safetensors that carry their own meaning and notice damage.

One safetensors file; parameters under their timm-style names in PyTorch's layout. The header's
metadata holds four entries: ``vit.format`` (the version), ``vit.schema`` and ``vit.preprocess`` (JSON),
``vit.digests`` (JSON, SHA-256 of each tensor's bytes) and ``vit.seal`` (SHA-256 over the other four).
Both twins read it with numpy alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import ml_dtypes  # noqa: F401 - registers bfloat16 with numpy
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vit_config.errors import ConfigError, MissingFileError, WeightsError
from vit_config.preprocess import Preprocess
from vit_config.schema import ViTConfig

FORMAT = "1"
_SEALED = ("vit.format", "vit.schema", "vit.preprocess", "vit.digests")
_TYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""What safetensors calls numpy's types."""


class Weights(NamedTuple):
    """What a weights file holds."""

    config: ViTConfig
    preprocess: Preprocess | None
    """None where nobody knows how the images were prepared."""
    arrays: dict[str, np.ndarray]
    """Parameters by timm-style name, in PyTorch's layout."""


class Tensor(NamedTuple):
    """What a weights file says of one tensor before its bytes are read."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Header(NamedTuple):
    """A weights file without its tensors' bytes."""

    config: ViTConfig
    preprocess: Preprocess | None
    """None where nobody knows how the images were prepared."""
    tensors: dict[str, Tensor]
    """By timm-style name, the shapes in PyTorch's layout."""


class Described(Protocol):
    """An array, or what a header says of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type."""
        ...


def write_weights(
    path: str | Path,
    config: ViTConfig,
    arrays: Mapping[str, np.ndarray],
    preprocess: Preprocess | None = None,
) -> None:
    """Write a weights file; the path holds either the whole new file or what it held before."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {
        "vit.format": FORMAT,
        "vit.schema": config.to_json(),
        "vit.preprocess": preprocess.to_json() if preprocess else "null",
        "vit.digests": json.dumps({name: _digest(array) for name, array in arrays.items()}),
    }
    metadata["vit.seal"] = _seal(metadata)
    write_atomically(Path(path), save(arrays, metadata=metadata))


def read_weights(path: str | Path) -> Weights:
    """Read a weights file, every byte of it checked.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: not a weights file of this project, truncated, or damaged (the tensor is named).
    """
    path = Path(path)
    metadata, arrays = _read(path, lambda file, name: file.get_tensor(name))
    _check_digests(path, json.loads(metadata["vit.digests"]), arrays)
    return Weights(*_meaning(path, metadata), arrays)


def read_header(path: str | Path) -> Header:
    """Read what a weights file says of itself; no tensor is read, so damage to one goes unnoticed.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: not a weights file of this project, truncated, its header damaged, or a tensor in
            it of a type that numpy lacks.
    """
    path = Path(path)
    metadata, slices = _read(path, lambda file, name: file.get_slice(name))
    _check_names(path, json.loads(metadata["vit.digests"]), slices)
    tensors = {name: _announced(path, name, each) for name, each in slices.items()}
    return Header(*_meaning(path, metadata), tensors)


def match_arrays(expected: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Described]) -> np.dtype:
    """Check that `arrays` are exactly the parameters that a model expects.

    Returns:
        The floating-point type that all of them share.

    Raises:
        WeightsError: one message with everything missing, unexpected, of another shape or type.
    """
    problems = [
        f"{name}: missing, the model has {shape}"
        for name, shape in expected.items()
        if name not in arrays
    ]
    problems += [
        f"{name}: unexpected, of shape {tuple(array.shape)}"
        for name, array in arrays.items()
        if name not in expected
    ]
    problems += [
        f"{name}: shape {tuple(arrays[name].shape)} in the weights, {tuple(shape)} in the model"
        for name, shape in expected.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(shape)
    ]
    types: dict[np.dtype, list[str]] = {}
    for name, array in arrays.items():
        types.setdefault(array.dtype, []).append(name)
    if len(types) > 1:
        common = max(types, key=lambda dtype: len(types[dtype]))
        problems += [
            f"{name}: type {arrays[name].dtype}, the others are {common}"
            for dtype, names in types.items()
            if dtype != common
            for name in names
        ]
    elif types and next(iter(types)).name not in ("float16", "bfloat16", "float32", "float64"):
        problems.append(f"all tensors are {next(iter(types))}, expected a floating-point type")
    if problems:
        raise WeightsError(f"{len(problems)} mismatches, nothing was loaded: " + "; ".join(problems))
    return next(iter(types))


def check_writable(path: Path) -> None:
    """Refuse a path that no file can be written to.

    Raises:
        MissingFileError: its folder does not exist.
        ConfigError: it is a folder itself.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; give the path of a file to write")
    if not path.absolute().parent.is_dir():
        raise MissingFileError(f"{path.parent}: no such folder to write {path.name} in; create it")


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to the disk, then rename it over `path`."""
    check_writable(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read(path: Path, part: Callable[[Any, str], Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """The sealed metadata of a weights file, and `part` of each tensor.

    Args:
        part: what to take of the open safetensors file for a name.
    """
    if path.is_dir():
        raise WeightsError(f"{path}: is a folder; give the path of a .safetensors file")
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give the path of a .safetensors file")
    _refuse_other_formats(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            parts = {name: part(file, name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsError(
            f"{path}: damaged or truncated safetensors file of {_sizes(path)} ({error}); copy it again"
        ) from None
    _check_seal(path, metadata)
    return metadata, parts


def _announced(path: Path, name: str, view: Any) -> Tensor:
    kind = view.get_dtype()
    if kind not in _TYPES:
        raise WeightsError(f"{path}: {name} has type {kind}; the known types are {', '.join(_TYPES)}")
    return Tensor(tuple(view.get_shape()), np.dtype(_TYPES[kind]))


def _meaning(path: Path, metadata: Mapping[str, str]) -> tuple[ViTConfig, Preprocess | None]:
    preprocess = None
    if metadata["vit.preprocess"] != "null":
        preprocess = Preprocess.from_json(metadata["vit.preprocess"], where=f"{path}: vit.preprocess")
    return ViTConfig.from_json(metadata["vit.schema"], where=f"{path}: vit.schema"), preprocess


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _seal(metadata: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join(metadata[key] for key in _SEALED).encode()).hexdigest()


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


def _sizes(path: Path) -> str:
    """The size of a safetensors file and, if its header can be read, the size that it announces."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, 2**27))
    size = f"{path.stat().st_size} bytes"
    try:
        tensors = [value for key, value in json.loads(header).items() if key != "__metadata__"]
        end = max((tensor["data_offsets"][1] for tensor in tensors), default=0)
        return f"{size} where its header announces {8 + length + end}"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return size


def _check_seal(path: Path, metadata: Mapping[str, str]) -> None:
    missing = [key for key in (*_SEALED, "vit.seal") if key not in metadata]
    if missing:
        raise WeightsError(
            f"{path}: safetensors without {', '.join(missing)} in its header; expected a file written"
            " by parity.save"
        )
    if metadata["vit.seal"] != _seal(metadata):
        raise WeightsError(f"{path}: the header was changed after writing; copy the file again")
    if metadata["vit.format"] != FORMAT:
        raise WeightsError(
            f"{path}: format {metadata['vit.format']}, this version reads {FORMAT}; update the package"
        )


def _check_names(path: Path, digests: Mapping[str, str], tensors: Mapping[str, Any]) -> None:
    if names := sorted(digests.keys() ^ tensors.keys()):
        raise WeightsError(f"{path}: tensors and digests do not name the same: {', '.join(names)}")


def _check_digests(path: Path, digests: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    _check_names(path, digests, arrays)
    damaged = [name for name, array in arrays.items() if _digest(array) != digests[name]]
    if damaged:
        raise WeightsError(
            f"{path}: damaged, the bytes of {', '.join(damaged)} do not match their digest;"
            " copy the file again"
        )
