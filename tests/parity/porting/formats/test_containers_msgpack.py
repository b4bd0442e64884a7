"""Msgpack files against flax."""

import os
import tracemalloc

import jax.numpy as jnp
import msgpack
import numpy as np
import pytest
from flax import serialization

from parity.porting.formats import (
    msgpack_writer,
    open_container,
    write_msgpack,
)
from tests.support.container_files import (
    EVERY,
    arrays,
    assert_same_bits,
    loaded,
    refused,
    stored,
    values,
    write_file,
)
from vit_config import ConfigError

pytestmark = pytest.mark.quick


def test_msgpack_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 40)
    expected = arrays(*EVERY)
    tree = {
        "params": {"of": expected, "list": [np.ones(2)], "jax": jnp.ones(3, jnp.bfloat16)},
        "step": 7, "big": 2**40, "negative": -300, "rate": 0.5, "name": "vit" * 20, "none": None,
        "flag": True, "complex": 1j, "scalar": np.float32(2.5), "bytes": b"abc", "nothing": {},
    }  # fmt: skip
    (tmp_path / "file").write_bytes(serialization.msgpack_serialize(tree))
    container = open_container(tmp_path / "file")
    assert container.objects == {key: value for key, value in tree.items() if key != "params"}
    tensors = loaded(container.tensors)
    assert tensors.pop("params/list/0").tolist() == [1, 1]
    assert tensors.pop("params/jax").tolist() == [1, 1, 1]
    assert_same_bits(tensors, {f"params/of/{name}": array for name, array in expected.items()})


@pytest.mark.parametrize("longest", [2**30, 40])
def test_msgpack_is_written(longest, tmp_path, monkeypatch):
    monkeypatch.setattr(msgpack_writer, "LONGEST", longest)
    expected = arrays(*EVERY)
    written = []
    tree = {"params": {"deeper": stored(expected)}, "step": 7, "name": "vit", "none": None}
    write_file(write_msgpack, tmp_path / "file", tree, written.append)
    tensors = serialization.msgpack_restore((tmp_path / "file").read_bytes())
    assert_same_bits(tensors["params"].pop("deeper"), expected)
    assert tensors == {"params": {}, "step": 7, "name": "vit", "none": None}
    assert sum(written) == sum(array.nbytes for array in expected.values())
    read = loaded(open_container(tmp_path / "file").tensors)
    assert_same_bits(read, {f"params/deeper/{name}": array for name, array in expected.items()})


def test_what_msgpack_cannot_hold(tmp_path):
    for value in (object(), 2**70, stored({"w": values("float8_e3m4")})["w"]):
        with pytest.raises(ConfigError, match="a/b"):
            write_file(write_msgpack, tmp_path / "file", {"a": {"b": value}})
    assert os.listdir(tmp_path) == []


def packed_array(shape, name, data):
    return msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb((shape, name, data)))})


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (packed_array((3,), "float32", bytes(12)) + b"\0", "not one whole file"),
        (packed_array((3,), "float32", bytes(12))[:-1], "truncated"),
        (packed_array((3,), "float32", bytes(11)), "11 bytes"),
        (packed_array((2**40,), "float32", bytes(11)), "damaged"),
        (packed_array((3,), "object", bytes(24)), "object"),
        (packed_array((-1,), "float32", bytes(4)), "length"),
        (packed_array((), "float32", 3), "damaged"),
        (msgpack.packb({"w": msgpack.ExtType(9, b"abc")}), "type 9"),
        (msgpack.packb({"w": msgpack.ExtType(1, b"")}), "truncated"),
        (b"\x82\xa1w\x01\xa1w\x02", "twice"),
        (b"\x81\x91\x01\x01", "not text"),
        (b"\x81\xa1w\xc1", "begins at byte 3 of 4 does not"),
        (b"\x81\xa1w\xc1" + b"a" * 9, "begins at byte 3 of 13 does not"),
        (b"\xdf\xff\xff\xff\xff\xa1w\x01", "truncated"),
        (b"\x81\xa1w\xdd\xff\xff\xff\xff\x01", "truncated"),
        (b"\x81\xa1w\xc6\xff\xff\xff\xff\x01", "damaged"),
        (b"\x81\xa1w\xc9\xff\xff\xff\xff\x01\x93", "exceeds max_ext_len(10)"),
        (b"\x81\xa1w\xc9\x00\x00\x00\x07\x01\x93", "of 10 does not end in it"),
        (b"\x81\xa1w" + b"\x91" * 100_000 + b"\x01", "deep"),
        (b"\x81\xa1w\xa1\xff", "damaged"),
        (msgpack.packb({"w": {"__msgpack_chunked_array__": True, "chunks": {}, "shape": {}}}), "chunks"),
        (
            msgpack.packb({"w": {"__msgpack_chunked_array__": True, "chunks": {"0": 1}, "shape": {}}}),
            "chunks",
        ),
        (msgpack.packb({"a": {"b": 1}, "a/b": 2}), "two entries are called a/b"),
    ],
)
def test_msgpack_that_flax_did_not_write(content, word, tmp_path):
    (tmp_path / "file").write_bytes(content)
    refused(tmp_path / "file", word)


LISTS = b"\xdd\x00\x40\x00\x00" + b"\x90" * 2**22
BOMBS = {
    "empty lists in a shape": msgpack.ExtType(1, b"\x93" + LISTS),
    "lists in a shape": msgpack.ExtType(1, b"\x93" + b"\x91" * 2**22),
    "lists in place of bytes": msgpack.ExtType(1, b"\x93\x90\xa7float32" + LISTS),
    "lists in a number": msgpack.ExtType(2, LISTS),
}
"""Four million values each, of which none is made."""


@pytest.mark.parametrize("kind", [*BOMBS, "holes"])
def test_what_is_announced_in_an_array_takes_no_memory(kind, tmp_path):
    path = tmp_path / "file"
    if kind == "holes":
        path.write_bytes(b"\x81\xa1w\xc9\x40\x00\x00\x00\x01\x93\x91\x00\xa4bool\xc6\x3f\xff\xff\xf3")
        os.truncate(path, 9 + 2**30)
    else:
        path.write_bytes(msgpack.packb({"w": BOMBS[kind]}))
    tracemalloc.start()
    refused(path, "the others are holes" if kind == "holes" else "damaged")
    assert tracemalloc.get_traced_memory()[1] < 192 * 2**20
    tracemalloc.stop()


def test_one_array_is_in_memory_at_a_time(tmp_path):
    expected = {f"block.{index}": np.full((256, 1024), index, np.float32) for index in range(24)}
    write_file(write_msgpack, tmp_path / "file", stored(expected))  # 1 MiB each
    open_container(tmp_path / "file")  # imports
    tracemalloc.start()
    tensors = open_container(tmp_path / "file").tensors
    assert tracemalloc.get_traced_memory()[0] < 2**19  # no array is kept
    for name, tensor in tensors.items():
        assert (tensor.load() == expected[name]).all()
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
