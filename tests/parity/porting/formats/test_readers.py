"""Every reader of files, taken from the code itself, on files of holes and claims too large."""

import ast
import os
import random
import time
import tracemalloc

import pytest

from parity.porting.formats import open_container
from parity.porting.text.tokens import copy_tokenizer
from tests.support.container_files import loaded, write_each
from tests.support.sources import modules_of
from vit_config import WeightsError

pytestmark = pytest.mark.quick

READERS = {
    "read_safetensors": ("safetensors", "sealed"),
    "read_torch_zip": ("torch",),
    "read_pickle": ("torch", "torchscript"),
    "read_torch_legacy": ("legacy",),
    "read_npz": ("npz", "deflated"),
    "read_msgpack": ("msgpack",),
    "read_hdf5": ("hdf5",),
    "read_equinox": ("equinox",),
    "read_equimo": ("lz4",),
    "read_archive": ("lz4",),
    "read_gguf": ("gguf",),
    "read_file": ("safetensors",),
}
"""Readers of one file, and the kinds of `write_each` that reach them."""
ELSEWHERE = {
    "read_distributed": "test_distributed.py, and its shards by read_torch_zip",
    "read_orbax": "test_hostile.py",
    "read_tensorstore": "test_hostile.py",
    "read_shards": "test_hostile.py, and its files by read_file",
    "read_sidecars": "tests/vit_config/test_foreign.py",
    "read_json": "tests/vit_config/test_foreign.py",
}
KINDS = sorted({kind for kinds in READERS.values() for kind in kinds})
SECONDS, MEMORY = 10.0, 2**28


def test_every_reader_is_tried():
    found = {
        each.name
        for _, tree in modules_of("parity/porting/formats")
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("read_")
    }
    assert found == READERS.keys() | ELSEWHERE


@pytest.mark.parametrize("kind", KINDS)
def test_holes_are_refused_before_they_are_read(kind, tmp_path):
    path = write_each(tmp_path)[kind]
    os.truncate(path, 2**36)
    begun = time.monotonic()
    tracemalloc.start()
    with pytest.raises(WeightsError, match="the others are holes"):
        open_container(path)
    assert tracemalloc.get_traced_memory()[1] < MEMORY
    tracemalloc.stop()
    assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize("kind", KINDS)
def test_what_claims_too_much_is_not_made(kind, tmp_path):
    """2^40, in either order of bytes and in digits, in the place of what stood there."""
    path = write_each(tmp_path)[kind]
    content, rng = path.read_bytes(), random.Random(kind)
    tracemalloc.start()
    for number in range(60):
        claim = (2**40).to_bytes(8, rng.choice(("little", "big"))) if number % 3 else b"1099511627776"
        at = rng.choice((rng.randrange(len(content)), rng.randrange(min(512, len(content)))))
        path.write_bytes(content[:at] + claim + content[at + len(claim) * (number % 2) :])
        begun = time.monotonic()
        try:
            loaded(open_container(path).tensors)
        except WeightsError as error:
            assert "\n" not in str(error)
        assert time.monotonic() - begun < SECONDS
    assert tracemalloc.get_traced_memory()[1] < MEMORY
    tracemalloc.stop()


def test_what_is_copied_has_a_budget(tmp_path):
    """A tokenizer and a host's files: `tests/parity/porting/test_into_host.py` has links and devices."""
    (tmp_path / "out").mkdir()
    (tmp_path / "tokenizer.json").touch()
    os.truncate(tmp_path / "tokenizer.json", 2**36)
    with pytest.raises(WeightsError, match="no such file needs so many"):
        copy_tokenizer(tmp_path, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
