"""Safetensors against the library that defines them, and sealed ones."""

import json
import os
import struct

import numpy as np
import pytest
import safetensors.torch

from parity.porting.formats import (
    open_container,
)
from tests.support.container_files import (
    EVERY,
    arrays,
    assert_same_bits,
    bits_of,
    loaded,
    refused,
    stored,
    tensor_of,
    values,
    write_file,
)
from vit_config import ConfigError, WeightsError, read_weights
from vit_config.files.safetensors_stream import write_stream

pytestmark = pytest.mark.quick

SAFE = tuple(name for name in EVERY if name not in ("complex128", "float8_e8m0fnu"))
"""Types that the safetensors library converts for PyTorch."""


def test_safetensors_are_read(tmp_path):
    expected = arrays(*SAFE)
    tensors = {name: tensor_of(array) for name, array in expected.items()}
    safetensors.torch.save_file(tensors, tmp_path / "file", {"format": "pt"})
    container = open_container(tmp_path / "file")
    assert container.metadata == {"format": "pt"}
    assert container.objects == {}
    assert_same_bits(loaded(container.tensors), expected)


@pytest.mark.parametrize("sealed", [False, True])
def test_safetensors_are_written(sealed, tmp_path):
    expected = {**arrays(*SAFE), "имя": np.ones(3, np.float32)}
    written = []
    metadata = {"format": "pt", "vit.dialect": "other"} if sealed else {"format": "pt"}
    write_file(
        write_stream,
        tmp_path / "file",
        stored(expected),
        metadata,
        sealed=sealed,
        progress=written.append,
    )
    tensors = safetensors.torch.load_file(tmp_path / "file")
    for name, array in expected.items():
        assert bits_of(tensors[name]) == array.tobytes(), name
        assert tuple(tensors[name].shape) == array.shape
        assert str(tensors[name].dtype) == f"torch.{array.dtype.name}"
    assert sum(written) == sum(array.nbytes for array in expected.values())
    container = open_container(tmp_path / "file")
    assert container.metadata["format"] == "pt"
    assert ("vit.seal" in container.metadata) is sealed
    assert_same_bits(loaded(container.tensors), expected)


def test_a_sealed_file_of_another_dialect_is_no_weights_file(tmp_path):
    metadata = dict.fromkeys(("vit.schema", "vit.preprocess", "vit.provenance"), "null")
    write_file(write_stream, tmp_path / "file", {}, {**metadata, "vit.dialect": "timm"}, sealed=True)
    with pytest.raises(WeightsError, match=r"timm, not of parity.*parity\.load.*parity convert"):
        read_weights(tmp_path / "file")


@pytest.mark.parametrize("key", ["vit.dialect", "vit.provenance", "vit.anything", "vit.digests"])
def test_every_entry_of_ours_is_sealed(key, tmp_path):
    path = tmp_path / "file"
    metadata = {"vit.dialect": "one", "vit.provenance": "one", "vit.anything": "one", "format": "one"}
    write_file(write_stream, path, stored(arrays("float32")), metadata, sealed=True)
    content = path.read_bytes()
    before = f'"{key}":"{{' if key == "vit.digests" else f'"{key}":"one'
    after = before[:-1] + (" " if key == "vit.digests" else "f")
    assert content.count(before.encode()) == 1
    path.write_bytes(content.replace(before.encode(), after.encode()))
    refused(path, "changed after writing")
    path.write_bytes(content.replace(b'"format":"one', b'"format":"two'))
    loaded(open_container(path).tensors)


def test_a_header_without_its_seal(tmp_path):
    write_file(
        write_stream, tmp_path / "file", stored(arrays("float32")), {"vit.format": "3"}, sealed=False
    )
    refused(tmp_path / "file", "no vit.digests, vit.seal")


def safetensors_file(path, header, data: bytes = b"", length: int | None = None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def entry(dtype="F32", shape=(2,), begin=0, end=8) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"w": entry()}, bytes(7), ["bytes", "announces"]),
        ({"w": entry()}, bytes(9), ["announces"]),
        ({"w": entry(end=4)}, bytes(4), ["w has 4 bytes", "takes 8"]),
        ({"w": entry(), "b": entry(begin=4, end=12)}, bytes(12), ["b starts at byte", "ends at"]),
        ({"w": entry(), "b": entry(begin=12, end=20)}, bytes(20), ["b starts at byte"]),
        ({"w": entry(dtype="F4")}, bytes(8), ["type F4", "BF16"]),
        ({"w": entry(dtype=["F32"])}, bytes(8), ["type"]),
        ({"w": entry(shape=(-2,))}, bytes(8), ["length"]),
        ({"w": entry(shape=(True, 2))}, bytes(8), ["length"]),
        ({"w": entry(shape=(2**62, 2**62), end=0)}, b"", ["length"]),
        ({"w": entry(shape=(2**40, 2**40, 0), end=0)}, b"", ["large"]),
        ({"w": entry(begin=8, end=0)}, bytes(8), ["-8 bytes"]),
        ({"w": {**entry(), "more": 1}}, bytes(8), ["w has no dtype"]),
        ({"w": 3}, b"", ["w has no dtype"]),
        ({"__metadata__": {"a": 1}}, b"", ["__metadata__"]),
        ({"__metadata__": []}, b"", ["__metadata__"]),
        (b'{"w":1,"w":2}', b"", ["w is given twice"]),
        (b"{" * 50000, b"", ["damaged"]),
        (b'{"w', b"", ["damaged"]),
        (b'{"\xff":1}', b"", ["damaged"]),
        (b"{}" + b"[" * 9, b"", ["damaged"]),
    ],
)
def test_a_header_that_contradicts_itself(header, data, words, tmp_path):
    safetensors_file(tmp_path / "file", header, data)
    refused(tmp_path / "file", *words)


@pytest.mark.parametrize("length", [2**63, 2**31, 3, 0])
def test_a_header_of_another_length(length, tmp_path):
    safetensors_file(tmp_path / "file", {"w": entry()}, bytes(8), length)
    refused(tmp_path / "file", "damaged")


def test_what_safetensors_cannot_hold(tmp_path):
    path = tmp_path / "file"
    for tensors, metadata in (
        ({"w": values("complex128")}, {}),
        ({"__metadata__": values("float32")}, {}),
        ({"w": values("float32")}, {"step": 3}),
        ({"\udcff": values("float32")}, {}),
    ):
        with pytest.raises(ConfigError):
            write_file(write_stream, path, stored(tensors), metadata, sealed=False)
    assert os.listdir(tmp_path) == []
