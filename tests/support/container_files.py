"""Small checkpoint files of every kind, and what is in them."""

from __future__ import annotations

import argparse
import json
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import ml_dtypes  # noqa: F401 - registers the types
import numpy as np
import pytest
import safetensors.torch
import torch
from flax import serialization

from parity.porting.formats import open_container, write_equinox, write_hdf5
from parity.porting.formats.equinox import METADATA, VERSION
from vit_config import WeightsError
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.stored import Stored

PLAIN = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64",
    "complex128",
)  # fmt: skip
EQUIMO = Path(__file__).with_name("equimo.tar.lz4")
"""A small model that Equimo 1.1.0 packed."""
UNSIGNED = ("uint16", "uint32", "uint64")
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
EVERY = (*PLAIN, "bfloat16", *UNSIGNED, *NARROW)


def write_file(write: Callable[..., None], path: str | Path, *args: object, **options: object) -> None:
    """Write a file by one of the writers; an older one goes."""
    with atomic_file(path, force=True) as file:
        write(file, *args, **options)


def values(dtype: str, shape=(3, 4)) -> np.ndarray:
    """Random bits of a type; among floats NaNs with a payload."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(len(dtype) + 3)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)


def arrays(*dtypes: str) -> dict[str, np.ndarray]:
    """One array of each type, and those of unusual shape."""
    by_name = {f"of.{dtype}": values(dtype) for dtype in dtypes}
    by_name["scalar"] = np.full((), 2.5, np.float32)
    by_name["empty"] = np.zeros((0, 3), np.float32)
    return by_name


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The same bits in PyTorch."""
    if not array.size:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype.name))
    flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
    return flat.view(getattr(torch, array.dtype.name)).reshape(array.shape)


def bits_of(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor in C order."""
    return (
        b""
        if not tensor.numel()
        else tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    )


def stored(actual: dict[str, np.ndarray]) -> dict[str, Stored]:
    """Arrays as what writers take."""
    return {name: Stored.of(array) for name, array in actual.items()}


def loaded(tensors: dict[str, Stored]) -> dict[str, np.ndarray]:
    """Every tensor, read, and as it was announced."""
    arrays = {name: tensor.load() for name, tensor in tensors.items()}
    for name, array in arrays.items():
        assert array.shape == tensors[name].shape, name
        assert array.dtype == tensors[name].dtype, name
        assert array.flags.c_contiguous, name
        assert array.nbytes == tensors[name].nbytes, name
    return arrays


def assert_same_bits(actual: dict, expected: dict) -> None:
    """The same names, types, shapes and bytes."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        assert actual[name].shape == array.shape, name
        assert actual[name].tobytes() == array.tobytes(), name


def small() -> dict[str, np.ndarray]:
    """A few tensors, for files that are damaged byte by byte."""
    return {"w": values("float32", (5, 3)), "b": values("bfloat16", (7,)), "n": np.arange(4)}


class Tiny(torch.nn.Module):
    """A module to compile."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.inner = torch.nn.Linear(2, 3)
        self.register_buffer("steps", torch.ones(3, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A sum."""
        return self.inner(x) @ self.w.T + torch.tensor([1.0, 2.0])


def write_torchscript(path: Path) -> dict[str, np.ndarray]:
    """A TorchScript archive, and its parameters."""
    model = Tiny()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(model), path)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def write_each(folder: Path) -> dict[str, Path]:
    """A small file of every kind, by kind."""
    folder.mkdir(exist_ok=True)
    values = small()
    tensors = OrderedDict((name, tensor_of(array)) for name, array in values.items())
    paths = {kind: folder / kind for kind in (
        "safetensors", "sealed", "torch", "legacy", "torchscript", "npz", "deflated", "msgpack", "hdf5",
        "equinox", "lz4", "gguf",
    )}  # fmt: skip
    safetensors.torch.save_file(dict(tensors), paths["safetensors"], {"format": "pt"})
    write_file(write_stream, paths["sealed"], stored(values), {"vit.dialect": "other"}, sealed=True)
    checkpoint = {"model": tensors, "args": argparse.Namespace(lr=0.1, name="a"), "epoch": np.int64(3)}
    torch.save(checkpoint, paths["torch"])
    torch.save(checkpoint, paths["legacy"], _use_new_zipfile_serialization=False)
    write_torchscript(paths["torchscript"])
    for kind, save in (("npz", np.savez), ("deflated", np.savez_compressed)):
        with paths[kind].open("wb") as file:
            save(file, **values)
    paths["msgpack"].write_bytes(
        serialization.msgpack_serialize({"params": {**values, "n": {"b": values["n"]}}})
    )
    floats = {"a/w": values["w"], "a/b": values["b"].astype(np.float32)}
    write_file(write_hdf5, paths["hdf5"], stored(floats))
    config = {"depths": [], "use_global_pos_embed": False, "class_token": False, "reg_tokens": 0}
    leaves = ("patch_embed.proj.weight", "patch_embed.proj.bias", "norm.weight", "norm.bias",
              "head.weight", "head.bias")  # fmt: skip
    files = {METADATA: json.dumps({"model_config": config, "equimo_version": VERSION})}
    write_file(write_equinox, paths["equinox"], {name: Stored.of(values["w"]) for name in leaves}, files)
    (folder / METADATA).write_text(files[METADATA])
    shutil.copyfile(EQUIMO, paths["lz4"])  # without its rights, which a checkout may have none of
    shutil.copyfile(EQUIMO.with_name("tower1.gguf"), paths["gguf"])
    return paths


def refused(path, *words: str) -> None:
    """Opening the path and loading what is in it fails with one line that has every one of `words`."""
    with pytest.raises(WeightsError) as caught:
        loaded(open_container(path).tensors)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
