"""Tensors whose bytes are copied as they lie in a file, piece by piece: what comes out is the same."""

import os
from typing import Any

import numpy as np
import pytest

import vit_config.files.safetensors_header as header
from parity.porting.formats import open_container
from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from parity.porting.writing.conversion_plan import plan
from tests.support.container_files import write_file
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import ViTConfig, WeightsError
from vit_config.files import safetensors_stream, stored
from vit_config.files.safetensors_stream import write_stream

pytestmark = pytest.mark.quick

SQUARE = TINY.replace(image_size=(32, 32), patch_size=(8, 8), norm_eps=1e-6)
HOW: dict[str, Any] = {
    "given": {
        "num_heads": 5,
        "norm_eps": 1e-6,
        "act": "gelu",
        "pool": "class",
        "block": "pre_norm",
        "pool_prefix": False,
    }
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Of 64 bytes, so that the smallest matrix has several and few end where a tensor does."""
    monkeypatch.setattr(stored, "PIECE", 64)
    monkeypatch.setattr(safetensors_stream, "PIECE", 64)


def source_of(folder, change=lambda arrays: None, cfg: ViTConfig = SQUARE):
    """A file of timm, as others write it: no digests."""
    arrays = arrays_of(cfg)
    change(arrays)
    tensors = {name: Stored.of(array) for name, array in arrays.items()}
    write_file(write_stream, folder / "source.safetensors", tensors, {"format": "pt"}, sealed=False)
    return folder / "source.safetensors"


def in_shards(folder):
    """The same in two files and an index."""
    tensors = open_container(source_of(folder)).tensors
    whole = {name: index % 2 for index, name in enumerate(tensors)}
    for shard in (0, 1):
        part = {name: tensors[name] for name, of in whole.items() if of == shard}
        write_file(write_stream, folder / f"{shard}.safetensors", part, {}, sealed=False)
    index = folder / "model.safetensors.index.json"
    places = ", ".join(f'"{name}": "{shard}.safetensors"' for name, shard in whole.items())
    index.write_text(f'{{"weight_map": {{{places}}}}}')
    return index


def changed_in(path, name, value):
    """Overwrite one number of a tensor in a file."""
    entry = header.read_file_header(path).entries[name]
    with path.open("r+b") as file:
        file.seek(entry.end - 4)
        file.write(np.float32(value).tobytes())


@pytest.mark.parametrize(
    ("to", "name", "options"),
    [
        ("hf", "out", {}),
        ("timm", "out.safetensors", {}),
        ("timm", "out.pth", {}),
        ("timm", "out.npz", {}),
        ("torchvision", "out.safetensors", {}),
        ("parity", "out.safetensors", {}),
        ("parity", "out.safetensors", {"dtype": "bfloat16"}),
        ("hf", "out.safetensors", {"image_size": (48, 32)}),
        ("hf", "out.safetensors", {"num_classes": 3}),
        ("hf", "out.msgpack", {"allow_nonfinite": True}),
    ],
)
@pytest.mark.parametrize("write", [source_of, in_shards])
def test_what_is_written_is_the_same(write, to, name, options, tmp_path, monkeypatch):
    source = write(tmp_path)
    actual = {}
    for way in ("pieces", "whole"):
        with monkeypatch.context() as patch:
            if way == "whole":
                patch.setattr(header, "Extent", lambda path, begin, load: load)
            (tmp_path / way).mkdir()
            counts = []
            convert(source, to=to, out=tmp_path / way / name, progress=counts.append, **HOW, **options)
        files = sorted(each for each in (tmp_path / way).rglob("*") if each.is_file())
        actual[way] = (
            {each.relative_to(tmp_path / way): each.read_bytes() for each in files},
            sum(counts),
        )
    assert actual["pieces"] == actual["whole"]


def test_where_the_bytes_are(tmp_path):
    """Of what is not rewritten, a cut tensor's parts among them; of nothing else."""
    source = read_checkpoint(source_of(tmp_path), **HOW)
    content = source.path.read_bytes()
    tensors = plan(source, "hf").tensors
    cut = [name for name, each in tensors.items() if isinstance(each.load, stored.Extent)]
    for name in cut:
        begin, each = tensors[name].load.begin, tensors[name]
        assert content[begin : begin + each.nbytes] == each.load().tobytes(), name
    assert sum("query" in name or "key" in name or "value" in name for name in cut) == 2 * 3 * TINY.depth
    assert sum("dense" in name for name in cut) == 3 * 2 * TINY.depth
    cast = plan(source, "hf", dtype="float16").tensors.values()
    assert not any(isinstance(each.load, stored.Extent) for each in cast)
    resized = plan(source, "timm", image_size=(48, 32)).tensors["pos_embed"]
    assert not isinstance(resized.load, stored.Extent)


def test_a_value_that_is_not_finite(tmp_path):
    def spoil(arrays):
        arrays["blocks.1.attn.qkv.weight"][-1, -1] = np.nan
        arrays["norm.bias"][0] = np.inf

    source = source_of(tmp_path, spoil)
    for out in ("hf", "hf.pth"):
        with pytest.raises(WeightsError) as caught:
            convert(source, to="hf", out=tmp_path / out, **HOW)
        assert "blocks.1.attn.qkv.weight: 1 of 2,700 values are not finite; norm.bias" in str(
            caught.value
        )
    assert [each.name for each in tmp_path.iterdir()] == [source.name]
    convert(source, to="hf", out=tmp_path / "out", allow_nonfinite=True, **HOW)


def once(action):
    """A progress callback that acts at the first call."""
    calls = []

    def progress(count):
        calls.append(count)
        if len(calls) == 1:
            action()

    return progress


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (
            lambda path: os.truncate(path, 9000),
            WeightsError,
            r"ends after \d+ bytes of \d+|changed wh",
        ),
        (lambda path: path.unlink(), WeightsError, "cannot be read as a safetensors file"),
        (
            lambda path: changed_in(path, "norm.weight", np.nan),
            WeightsError,
            "weight: 1 of|changed wh",
        ),
        (lambda path: 1 / 0, ZeroDivisionError, "by zero"),
    ],
)
def test_a_file_that_changes_meanwhile(action, error, words, tmp_path):
    source = source_of(tmp_path)
    with pytest.raises(error, match=words):
        convert(source, to="hf", out=tmp_path / "out", progress=once(lambda: action(source)), **HOW)
    assert {each.name for each in tmp_path.iterdir()} <= {source.name}


def test_a_file_that_is_whole_again(tmp_path):
    """What was wrong is gone when it is read once more: nobody knows what was written."""
    load = open_container(source_of(tmp_path)).tensors["norm.weight"].load
    never = stored.Extent(load.path, load.begin, load.load, lambda values: False)
    with pytest.raises(WeightsError, match="changed while it was read"):
        list(never.pieces(np.dtype(np.float32), 120))
