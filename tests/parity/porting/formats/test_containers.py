"""Any checkpoint is opened by what is in it; folders, shards and the files beside the weights."""

import json
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from parity.porting.formats import open_container, write_npz, write_torch
from parity.porting.formats.weights_folder import WEIGHTS, find_weights
from tests.support.container_files import (
    arrays,
    assert_same_bits,
    loaded,
    small,
    stored,
    tensor_of,
    write_each,
    write_file,
)
from vit_config import MissingFileError, WeightsError
from vit_config.files.safetensors_stream import write_stream

pytestmark = pytest.mark.quick

KINDS = {
    "safetensors": "safetensors",
    "sealed": "safetensors",
    "torch": "torch",
    "legacy": "torch (legacy)",
    "torchscript": "TorchScript",
    "npz": "npz",
    "deflated": "npz",
    "msgpack": "msgpack",
}


def refused(path, *words: str, error=WeightsError) -> str:
    """Opening the path, or loading what is in it, fails with one line that has every one of `words`."""
    with pytest.raises(error) as caught:
        loaded(open_container(path).tensors)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def linear(names=("a.weight", "b.weight")) -> dict[str, np.ndarray]:
    """Tensors for a shard."""
    return {name: np.full((2, 3), index, np.float32) for index, name in enumerate(names)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_what_its_bytes_are_whatever_it_is_called(kind, tmp_path):
    original = write_each(tmp_path / "files")[kind]
    for name in ("x.safetensors", "x.npz", "x.pth", "x.msgpack", "x"):
        path = tmp_path / name
        shutil.copy(original, path)
        container = open_container(str(path))
        assert container.kind == KINDS[kind]
        assert container.path == path
        assert container.files == (path,)
        assert container.sidecars == {}
        loaded(container.tensors)


READ_ALONE = """
import sys
for name in ("torch", "jax", "flax"):
    sys.modules[name] = None  # importing it fails
from parity.porting import formats
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_stream import write_stream
for path in sys.argv[1:]:
    tensors = formats.open_container(path).tensors
    for tensor in tensors.values():
        tensor.load()
for write in (formats.write_npz, formats.write_torch, formats.write_msgpack):
    with atomic_file(path + write.__name__) as file:
        write(file, tensors)
with atomic_file(path + ".safetensors") as file:
    write_stream(file, tensors, {}, sealed=True)
"""


def test_no_framework_is_needed(tmp_path):
    paths = write_each(tmp_path)
    subprocess.run([sys.executable, "-c", READ_ALONE, *map(str, paths.values())], check=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (
            b"hello world\n\tand more",
            ["is a text file", "the known kinds of checkpoints are safetensors"],
        ),
        (b"\0\1hello", ["00 01 68 65 6c", "the known kinds of checkpoints are safetensors"]),
        (b"\x89PNG\r\n\x1a\n", ["is an image"]),
        (b"\x1f\x8b\x08rest", ["gzip"]),
        (b"\x89HDF\r\n\x1a\n", ["HDF5"]),
        (b"<!DOCTYPE html><html>", ["web page"]),
        (b"version https://git-lfs.github.com/spec/v1\n", ["git lfs pull"]),
        (b"\0" * 257 + b"ustar\0" + b"\0" * 300, ["tar archive"]),
    ],
)
def test_other_files_are_named(content, words, tmp_path):
    path = tmp_path / "model.pth"
    path.write_bytes(content)
    refused(path, str(path), *words)


def test_a_zip_archive_of_something_else_is_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "readme.txt").write_text("weights are elsewhere")
    path = shutil.make_archive(str(tmp_path / "download"), "zip", tmp_path / "inside")
    refused(path, path, "1 files", "no data.pkl")


def test_nothing_there(tmp_path):
    refused(tmp_path / "nowhere.pth", "nowhere.pth: no such file or folder", error=MissingFileError)


# Folders


def test_an_empty_folder_says_what_was_looked_for(tmp_path):
    refused(tmp_path, "model.safetensors", "pytorch_model.bin", "Orbax", error=MissingFileError)
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    refused(tmp_path, "give one of the folders in it, as checkpoint-10", error=MissingFileError)


@pytest.mark.parametrize("inside", ["snapshots/0a1b", "image_encoder"])
def test_a_folder_of_folders_names_one_with_weights(tmp_path, inside):
    (tmp_path / "blobs").mkdir()
    (tmp_path / inside).mkdir(parents=True)
    save_file(small_plain(), tmp_path / inside / "model.safetensors")
    refused(tmp_path, f"give one of the folders in it, as {inside}", error=MissingFileError)


def test_a_program_of_tensorflow_is_named(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    refused(tmp_path, "is a SavedModel of TensorFlow")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("model.safetensors", lambda path: save_file(small_plain(), path)),
        ("open_clip_model.safetensors", lambda path: save_file(small_plain(), path)),
        ("pytorch_model.bin", lambda path: write_file(write_torch, path, stored(small_plain()))),
        (
            "open_clip_pytorch_model.bin",
            lambda path: write_file(write_torch, path, stored(small_plain())),
        ),
    ],
)
def test_a_folder_is_its_weights_and_the_files_beside_them(name, write, tmp_path):
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    write(folder / name)
    (folder / "config.json").write_text('{"hidden_size": 30}')
    (folder / "trainer_state.json").write_text('{"epoch": 1.0}')
    (folder / "notes.json").write_text("not ours")
    container = open_container(folder)
    assert container.path == folder
    assert container.files == (folder / name,)
    assert container.sidecars == {
        "config.json": {"hidden_size": 30},
        "trainer_state.json": {"epoch": 1.0},
    }
    assert_same_bits(loaded(container.tensors), small_plain())
    assert open_container(folder / name).sidecars == container.sidecars


def small_plain() -> dict[str, np.ndarray]:
    return {name: array for name, array in small().items() if array.dtype.name != "bfloat16"}


def test_safetensors_are_preferred(tmp_path):
    save_file({"a": np.ones(3)}, tmp_path / "model.safetensors")
    write_file(write_torch, tmp_path / "pytorch_model.bin", stored({"b": np.ones(3)}))
    container = open_container(tmp_path)
    assert container.kind == "safetensors"
    assert list(container.tensors) == ["a"]


@pytest.mark.parametrize("content", ['{"a": 1\n,}', "", "[" * 100000, '{"a": "\udcff"}'])
def test_a_config_that_is_not_json_is_named(content, tmp_path):
    save_file(linear(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    refused(tmp_path, str(tmp_path / "config.json"), "line 2" if "\n" in content else "")


# Shards


@pytest.fixture
def sharded(tmp_path):
    """A folder of two shards: edit its index, then write it."""
    first, second = linear(("a.weight", "b.weight")), linear(("c.weight",))
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file(second, tmp_path / "model-2.safetensors", metadata={"format": "pt"})
    places = {"a.weight": "model-1.safetensors", "b.weight": "model-1.safetensors"}
    return tmp_path, {
        "metadata": {"total_size": 72},
        "weight_map": {**places, "c.weight": "model-2.safetensors"},
    }


def write_index(sharded):
    folder, index = sharded
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_one_container(sharded):
    folder = write_index(sharded)
    for path in (folder, folder / "model.safetensors.index.json"):
        container = open_container(path)
        assert container.kind == "safetensors (2 shards)"
        assert container.path == path
        assert [file.name for file in container.files] == ["model-1.safetensors", "model-2.safetensors"]
        assert container.metadata == {"format": "pt"}
        expected = {**linear(("a.weight", "b.weight")), **linear(("c.weight",))}
        assert_same_bits(loaded(container.tensors), expected)


def test_shards_of_torch(tmp_path):
    write_file(write_torch, tmp_path / "1.bin", stored(linear(("a",))))
    write_file(write_torch, tmp_path / "2.bin", stored(linear(("b",))))
    (tmp_path / "pytorch_model.bin.index.json").write_text(
        '{"weight_map": {"a": "1.bin", "b": "2.bin"}}'
    )
    container = open_container(tmp_path)
    assert container.kind == "torch (2 shards)"
    assert_same_bits(loaded(container.tensors), {**linear(("a",)), **linear(("b",))})


def test_one_of_several_shards_is_no_model(tmp_path):
    first, second = (tmp_path / f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    save_file(linear(("a",)), first)
    for path in (first, tmp_path):
        refused(
            path,
            "is 1 of 2 files of a model",
            "no model.safetensors.index.json is",
            error=MissingFileError,
        )
    save_file(linear(("b",)), second)
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": first.name, "b": second.name}})
    )
    for path in (first, second, tmp_path):
        assert open_container(path).tensors.keys() == {"a", "b"}
    alone = tmp_path / "other-00001-of-00001.safetensors"
    save_file(linear(("c",)), alone)
    assert open_container(alone).tensors.keys() == {"c"}


INDICES = [
    "model.fp16.safetensors.index.json",
    "model.safetensors.index.fp16.json",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors.index.fp16.json",
]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("shard", ["{}.fp16-0000{}-of-00002.{}", "{}-0000{}-of-00002.fp16.{}"])
def test_shards_of_a_variant(tmp_path, index, shard):
    names = [shard.format(index.partition(".")[0], number, "safetensors") for number in (1, 2)]
    for name, path in zip("ab", names, strict=True):
        save_file(linear((name,)), tmp_path / path)
    refused(tmp_path, "is 1 of 2 files of a model", "all the files into one", error=MissingFileError)
    places = json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    (tmp_path / index).write_text(places)
    for path in (tmp_path, tmp_path / index, *(tmp_path / name for name in names)):
        assert open_container(path).tensors.keys() == {"a", "b"}
    other = "other.safetensors.index.json"
    (tmp_path / other).write_text(places)
    refused(tmp_path, "2 files can be the weights", index, other, error=MissingFileError)


def test_a_shard_of_several_models_names_their_indices(tmp_path):
    save_file(linear(("a",)), tmp_path / "x-00001-of-00002.safetensors")
    for name in ("y", "z"):
        content = {"weight_map": {"a": "x-00001-of-00002.safetensors"}}
        (tmp_path / f"{name}.safetensors.index.json").write_text(json.dumps(content))
    refused(
        tmp_path / "x-00001-of-00002.safetensors",
        "is a file of several models; give the index of one: y.safetensors.index.json, z.safetensors",
    )


def test_the_order_in_a_folder_is_that_of_the_page(tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "porting.md").read_text(encoding="utf-8")
    stated = page.partition("the first of these is read:")[2].partition("Without them")[0]
    assert re.findall(r"`(.+?)`", stated) == [each for each in WEIGHTS if not each.endswith(".json")]
    for name in WEIGHTS:
        (tmp_path / name).write_bytes(b"")
    for name in WEIGHTS:
        assert find_weights(tmp_path).name == name
        (tmp_path / name).unlink()


def test_a_missing_shard_is_named(sharded):
    folder = write_index(sharded)
    (folder / "model-2.safetensors").unlink()
    refused(folder, "model-2.safetensors: no such file", "index.json names it", error=MissingFileError)


def test_an_index_that_disagrees_with_its_files(sharded):
    index = sharded[1]
    index["weight_map"]["d.weight"] = "model-1.safetensors"
    refused(write_index(sharded), "1 tensors", "d.weight is not in model-1.safetensors")
    del index["weight_map"]["d.weight"], index["weight_map"]["b.weight"]
    refused(write_index(sharded), "b.weight in model-1.safetensors is not in the index")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "..\\x", "", "x\0y"])
def test_an_index_does_not_leave_its_folder(sharded, name):
    sharded[1]["weight_map"]["a.weight"] = name
    refused(write_index(sharded), "not in its folder")


@pytest.mark.parametrize(
    "index", [[], {}, {"weight_map": {"a": 3}}, {"weight_map": []}, {"weight_map": {}}]
)
def test_an_index_that_is_none(sharded, index):
    refused(write_index((sharded[0], index)), "index.json")


# Laziness

LARGE = {f"block.{index}": np.full((256, 1024), index, np.float32) for index in range(24)}
"""1 MiB each."""


def write_large(kind, path):
    tensors = stored(LARGE)
    if kind == "torch":
        write_file(write_torch, path, tensors)
    elif kind == "legacy":
        torch.save({name: tensor_of(array) for name, array in LARGE.items()}, path,
                   _use_new_zipfile_serialization=False)  # fmt: skip
    elif kind == "npz":
        write_file(write_npz, path, tensors)
    else:
        write_file(write_stream, path, tensors, {}, sealed=kind == "sealed")


@pytest.mark.parametrize("kind", ["safetensors", "sealed", "torch", "legacy", "npz"])
def test_one_tensor_is_in_memory_at_a_time(kind, tmp_path):
    write_large(kind, tmp_path / "large")
    open_container(tmp_path / "large")  # imports
    tracemalloc.start()
    container = open_container(tmp_path / "large")
    assert tracemalloc.get_traced_memory()[1] < 2**19
    for name, tensor in container.tensors.items():
        assert (tensor.load() == LARGE[name]).all()
    assert tracemalloc.get_traced_memory()[1] < 3.5 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("write", [write_npz, write_torch, "safetensors"])
def test_writers_hold_one_tensor_at_a_time(write, tmp_path):
    write_large("safetensors", tmp_path / "large")
    tensors = open_container(tmp_path / "large").tensors
    written = []
    tracemalloc.start()
    if write == "safetensors":
        write_file(write_stream, tmp_path / "copy", tensors, {}, sealed=True, progress=written.append)
    else:
        write_file(write, tmp_path / "copy", tensors, written.append)
    assert tracemalloc.get_traced_memory()[1] < 3.5 * 2**20
    tracemalloc.stop()
    assert sum(written) == sum(array.nbytes for array in LARGE.values())
    assert_same_bits(loaded(open_container(tmp_path / "copy").tensors), LARGE)


@pytest.mark.parametrize("kind", ["safetensors", "sealed", "torch", "npz"])
def test_damage_to_one_tensor_leaves_the_others_readable(kind, tmp_path):
    path = tmp_path / "large"
    write_large(kind, path)
    content = bytearray(path.read_bytes())
    place = content.find(np.full(99, 7, np.float32).tobytes()) + 40
    content[place] ^= 1
    path.write_bytes(content)
    tensors = open_container(path).tensors
    for name, array in LARGE.items():
        if name != "block.7":
            assert (tensors[name].load() == array).all()
    if kind == "safetensors":
        return  # which has no checksum
    with pytest.raises(WeightsError) as caught:
        tensors["block.7"].load()
    assert str(path) in str(caught.value)
    named = {"sealed": "block.7", "npz": "block.7.npy", "torch": "archive/data/7"}
    assert named[kind] in str(caught.value)


def test_a_file_that_shrinks_after_it_was_opened(tmp_path):
    for kind, path in write_each(tmp_path).items():
        tensors = open_container(path).tensors
        if kind == "lz4":  # whole in memory
            continue
        with path.open("r+b") as file:
            file.truncate(40)
        for name, tensor in tensors.items():
            with pytest.raises(WeightsError) as caught:
                tensor.load()
            assert str(path) in str(caught.value), (kind, name)


def test_arrays_in_memory_are_stored_tensors():
    for name, array in arrays("float32", "bfloat16", "bool").items():
        tensor = stored({name: array})[name]
        assert tensor.load().tobytes() == array.tobytes()
        assert not tensor.load().flags.writeable
        assert array.flags.writeable or not array.flags.owndata
    assert (stored({"x": np.arange(3, dtype=">i4")})["x"].load() == [0, 1, 2]).all()
    assert stored({"x": np.arange(3, dtype=">i4")})["x"].dtype.isnative


def test_a_python_file_has_functions(tmp_path):
    (tmp_path / "port.py").write_text("def port():\n    pass\n")
    with pytest.raises(WeightsError, match=r"what it builds is port\.py:FUNCTION"):
        open_container(tmp_path / "port.py")


def test_a_training_run_is_its_exported_weights(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(MissingFileError, match=r"a training run without weights\.safetensors yet"):
        find_weights(tmp_path)
    for name in ("weights.safetensors", "test_images.npz"):
        (tmp_path / name).touch()
    assert find_weights(tmp_path) == tmp_path / "weights.safetensors"


def test_a_folder_of_deepspeed_names_what_joins_it(tmp_path):
    """As a run's folder and one of its steps; what its own program writes into it is read."""
    step, state = tmp_path / "global_step7", {"a.weight": torch.ones(2, 3)}
    step.mkdir()
    (tmp_path / "latest").write_text("global_step7")
    (tmp_path / "zero_to_fp32.py").write_text("")
    torch.save({"module": state}, step / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    for folder in (tmp_path, step):
        with pytest.raises(WeightsError, match=r"DeepSpeed; .*`python zero_to_fp32\.py \. OUT` joins"):
            open_container(folder)
    whole = step / "mp_rank_00_model_states.pt"
    torch.save({"module": state}, whole)
    with pytest.raises(WeightsError, match=r"give mp_rank_00_model_states\.pt, which is whole"):
        open_container(step)
    assert [*open_container(whole).tensors] == ["module.a.weight"]
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert [*open_container(tmp_path).tensors] == ["a.weight"]
