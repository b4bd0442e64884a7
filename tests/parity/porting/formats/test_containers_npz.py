"""Archives of numpy against numpy."""

import os
import zipfile

import numpy as np
import pytest
import torch

from parity.porting.formats import (
    open_container,
    write_msgpack,
    write_npz,
)
from tests.support.container_files import (
    NARROW,
    PLAIN,
    UNSIGNED,
    arrays,
    assert_same_bits,
    bits_of,
    loaded,
    refused,
    stored,
    values,
    write_file,
)
from vit_config import ConfigError

pytestmark = pytest.mark.quick

NUMPY = (*PLAIN, "bfloat16", *UNSIGNED)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_read(save, tmp_path):
    expected = {**arrays(*NUMPY), "Transformer/encoder/kernel": np.ones((2, 3))}
    given = {
        **expected,
        "turned": np.asfortranarray(values("float32")),
        "swapped": np.arange(3, dtype=">i4"),
    }
    with (tmp_path / "file").open("wb") as file:
        save(file, **given, name=np.array("ViT-B_16"), words=np.array([["a", "b"]]))
    container = open_container(tmp_path / "file")
    expected["turned"] = np.ascontiguousarray(given["turned"])
    expected["swapped"] = np.arange(3, dtype=np.int32)
    assert_same_bits(loaded(container.tensors), expected)
    assert container.objects == {"name": "ViT-B_16", "words/0/0": "a", "words/0/1": "b"}


def test_npz_is_written(tmp_path):
    expected = {**arrays(*NUMPY), "Transformer/encoder/kernel": np.ones((2, 3))}
    written = []
    write_file(write_npz, tmp_path / "file.npz", stored(expected), written.append)
    with np.load(tmp_path / "file.npz") as actual:
        assert set(actual.files) == set(expected)
        assert actual["of.bfloat16"].dtype == np.dtype("V2")
        for name, array in expected.items():
            assert actual[name].tobytes() == array.tobytes()
            assert actual[name].shape == array.shape
            assert actual[name].dtype == array.dtype or name == "of.bfloat16"
    assert sum(written) == sum(array.nbytes for array in expected.values())
    assert_same_bits(loaded(open_container(tmp_path / "file.npz").tensors), expected)


@pytest.mark.parametrize("dtype", NARROW)
def test_npz_cannot_hold_types_that_have_no_name_there(dtype, tmp_path):
    with pytest.raises(ConfigError, match=rf"w: numpy's files cannot hold {dtype}"):
        write_file(write_npz, tmp_path / "file.npz", stored({"w": values(dtype)}))
    assert os.listdir(tmp_path) == []


class Trap:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.array([Trap()]), "Python objects"),
        (np.zeros(3, [("a", "f4")]), "type"),
        (np.zeros(3, "M8[s]"), "type"),
        (np.zeros(3, "V5"), "type"),
    ],
)
def test_arrays_that_no_model_has(array, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("file.npz", w=array, b=np.ones(3))
    refused(tmp_path / "file.npz", "w.npy", word)
    assert os.listdir(tmp_path) == ["file.npz"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_npz_with_a_name_twice(tmp_path):
    np.savez(tmp_path / "file.npz", w=np.ones(3))
    content = zipfile.ZipFile(tmp_path / "file.npz").read("w.npy")
    with zipfile.ZipFile(tmp_path / "file.npz", "a") as archive:
        archive.writestr("w.npy", content)
    refused(tmp_path / "file.npz", "same name")


def test_npz_whose_header_announces_another_size(tmp_path):
    np.savez(tmp_path / "file.npz", w=np.ones(3))
    content = zipfile.ZipFile(tmp_path / "file.npz").read("w.npy")
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as archive:
        archive.writestr("w.npy", content.replace(b"(3,)", b"(9,)"))
    refused(tmp_path / "file.npz", "w.npy has 152 bytes", "takes 200")


def test_torch_reads_what_came_from_elsewhere(tmp_path):
    """From each kind to each kind, by way of the streams alone."""
    from parity.porting.formats import write_torch

    expected = arrays(*NUMPY)
    write_file(write_npz, tmp_path / "a", stored(expected))
    write_file(write_torch, tmp_path / "b", open_container(tmp_path / "a").tensors)
    write_file(write_msgpack, tmp_path / "c", open_container(tmp_path / "b").tensors)
    write_file(write_npz, tmp_path / "d", open_container(tmp_path / "c").tensors)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "d").read_bytes()
    tensors = torch.load(tmp_path / "b", weights_only=True)
    assert {name: bits_of(tensor) for name, tensor in tensors.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
