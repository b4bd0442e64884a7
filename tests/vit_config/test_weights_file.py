"""The weights file: bit for bit, readable by either twin alone, and no damage goes unnoticed."""

import contextlib
import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
import xxhash
from safetensors import safe_open
from safetensors.numpy import save_file

import parity
import vit_config.files.seal
import vit_jax
import vit_jax.weights
import vit_torch
import vit_torch.weights
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import (
    ConfigError,
    MissingFileError,
    Preprocess,
    WeightsError,
    read_weights,
    write_weights,
)
from vit_config.files.places import _exchanged

pytestmark = [pytest.mark.versions, pytest.mark.quick]

CFG = TINY.replace(depth=1, register_tokens=2, layer_scale=0.1)
PREPROCESS = Preprocess(
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
    interpolation="bilinear",
    crop_fraction=0.875,
    class_names=("zero", "один", "deux", *map(str, range(3, 11))),
)
DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
TWINS = {"jax": vit_jax, "torch": vit_torch}


def arrays_of(dtype: str) -> dict[str, np.ndarray]:
    """Re-drawn weights, among them values that a conversion through another type would lose."""
    arrays = {name: array.astype(DTYPES[dtype]) for name, array in redrawn(CFG).items()}
    info = ml_dtypes.finfo(DTYPES[dtype])
    special = [
        -0.0,
        0.0,
        np.inf,
        -np.inf,
        np.nan,
        info.tiny,
        info.smallest_subnormal,
        info.max,
        1 + info.eps,
    ]
    arrays["head.weight"][0, : len(special)] = np.array(special, DTYPES[dtype])
    return arrays


def assert_same_bits(arrays: dict, expected: dict) -> None:
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype, name
        assert array.shape == expected[name].shape, name
        assert array.tobytes() == expected[name].tobytes(), name


@pytest.fixture
def path(tmp_path):
    """A good file in float32."""
    path = tmp_path / "weights.safetensors"
    write_weights(path, CFG, arrays_of("float32"), PREPROCESS)
    return path


def refused(path, *words: str, read=read_weights) -> str:
    """Reading fails with one line that names the file and every one of `words`."""
    with pytest.raises(WeightsError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    for word in words:
        assert word in message
    return message


def split(content: bytes) -> tuple[dict, int]:
    """The header of a safetensors file, and where its data starts."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), 8 + length


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("writer", TWINS)
@pytest.mark.parametrize("reader", TWINS)
def test_a_round_trip_keeps_every_bit(writer, reader, dtype, tmp_path):
    arrays, path = arrays_of(dtype), tmp_path / "weights.safetensors"
    with jax.enable_x64(dtype == "float64"):
        model = TWINS[writer].from_arrays(CFG, arrays)
        assert_same_bits(TWINS[writer].to_arrays(model), arrays)
        parity.save(path, model, preprocess=PREPROCESS)
        loaded = parity.load(path, framework=reader)
        assert isinstance(loaded.model, TWINS[reader].ViT)
        assert_same_bits(TWINS[reader].to_arrays(loaded.model), arrays)
    assert loaded.config == CFG
    assert loaded.preprocess == PREPROCESS
    assert_same_bits(read_weights(path).arrays, arrays)


READ_ALONE = """
import sys
sys.modules[{other!r}] = None  # importing it fails
import {twin} as twin
from vit_config import read_weights
weights = read_weights({path!r})
model = twin.from_arrays(weights.config, weights.arrays)
import parity
again = parity.load({path!r}, framework={framework!r}).model
for m in (model, again):
    assert all((a == weights.arrays[n]).all() for n, a in twin.to_arrays(m).items())
parity.save({path!r} + ".again", again, preprocess=weights.preprocess)
loaded = [m.partition(".")[0] for m, module in sys.modules.items() if module is not None]
assert not {{{other!r}, "vit_" + {other!r}}} & set(loaded), loaded
print(weights.preprocess.class_names[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "other"), [("jax", "torch"), ("torch", "jax")])
def test_either_twin_reads_it_without_the_other_framework(framework, other, tmp_path):
    path = tmp_path / "weights.safetensors"
    arrays = {name: array.astype(np.float32) for name, array in redrawn(CFG).items()}
    write_weights(path, CFG, arrays, PREPROCESS)
    code = READ_ALONE.format(framework=framework, other=other, twin=f"vit_{framework}", path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "один"
    assert_same_bits(read_weights(f"{path}.again").arrays, arrays)


def test_the_header_says_what_the_tensors_mean(path):
    with safe_open(path, framework="numpy") as file:
        metadata, names = file.metadata(), set(file.keys())
    assert metadata["vit.format"] == "3"
    assert vit_config.ViTConfig.from_json(metadata["vit.schema"]) == CFG
    assert json.loads(metadata["vit.preprocess"])["class_names"] == list(PREPROCESS.class_names)
    assert Preprocess.from_json(metadata["vit.preprocess"]) == PREPROCESS
    assert names == redrawn(CFG).keys()
    assert json.loads(metadata["vit.digests"]) == digests_of(arrays_of("float32"), xxhash.xxh3_128)


def digests_of(arrays: dict, hasher) -> dict[str, str]:
    """By tensor, of its type, shape and bytes."""
    return {
        name: hasher(f"{array.dtype.name}{array.shape}".encode() + array.tobytes()).hexdigest()
        for name, array in arrays.items()
    }


def test_files_of_format_2_are_read_and_verified(path):
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    arrays = arrays_of("float32")
    metadata["vit.format"] = "2"
    metadata["vit.digests"] = json.dumps(digests_of(arrays, hashlib.sha256))
    sealed = sorted(key for key in metadata if key.startswith("vit.") and key != "vit.seal")
    text = "".join(f"{key}\0{metadata[key]}\0" for key in sealed)
    metadata["vit.seal"] = hashlib.sha256(text.encode()).hexdigest()
    save_file(arrays, path, metadata=metadata)
    assert_same_bits(read_weights(path).arrays, arrays)
    content = bytearray(path.read_bytes())
    header, start = split(content)
    content[start + header["norm.bias"]["data_offsets"][0]] ^= 1
    path.write_bytes(content)
    refused(path, "the bytes of norm.bias do not match")
    with pytest.raises(WeightsError, match=r"the bytes of norm\.bias do not match"):
        parity.load(path, framework="torch")


def test_preprocessing_that_nobody_knows_is_none(tmp_path):
    path = tmp_path / "weights.safetensors"
    parity.save(path, vit_torch.from_arrays(CFG, arrays_of("float32")))
    assert parity.load(path, framework="torch").preprocess is None


@pytest.mark.parametrize("length", [19280, 66432])
def test_a_header_of_any_length_is_read(length, tmp_path):
    # the file starts with this length: 19280 reads "PK" like a zip archive, 66432 like a pickle
    path, arrays = tmp_path / "weights.safetensors", arrays_of("float32")
    write_weights(path, CFG, arrays, Preprocess(class_names=("",)))
    missing = length - int.from_bytes(path.read_bytes()[:8], "little")
    write_weights(path, CFG, arrays, Preprocess(class_names=("x" * missing,)))
    assert int.from_bytes(path.read_bytes()[:8], "little") == length
    assert_same_bits(read_weights(path).arrays, arrays)


def test_a_flipped_byte_in_any_tensor_is_found_and_the_tensor_named(path):
    content = path.read_bytes()
    header, start = split(content)
    names = [name for name in header if name != "__metadata__"]
    assert len(names) == len(redrawn(CFG))
    for name in names:
        begin, end = header[name]["data_offsets"]
        for offset in {begin, (begin + end) // 2, end - 1}:
            damaged = bytearray(content)
            damaged[start + offset] ^= 1
            path.write_bytes(damaged)
            refused(path, f"the bytes of {name} do not match")


def test_every_damaged_tensor_is_named(path):
    content = bytearray(path.read_bytes())
    header, start = split(content)
    for name in ("cls_token", "head.bias"):
        content[start + header[name]["data_offsets"][0]] ^= 0xFF
    path.write_bytes(content)
    assert "norm" not in refused(path, "cls_token, head.bias")


def test_a_flipped_byte_in_the_header_is_found(path):
    content = path.read_bytes()
    _, start = split(content)
    for position in [*range(16), *range(16, start, 11)]:
        for mask in (1, 0x20):
            damaged = bytearray(content)
            damaged[position] ^= mask
            path.write_bytes(damaged)
            refused(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'\\"norm_eps\\":1e-6', b'\\"norm_eps\\":1e-5'),
        (b'\\"bilinear\\"', b'\\"bicubic\\" '),
        ("один".encode(), "едом".encode()),
    ],
)
def test_a_changed_header_is_found(path, before, after):
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    refused(path, "header was changed after writing")


@pytest.mark.parametrize("twin", TWINS)
def test_another_type_or_shape_in_the_header_is_found(path, twin):
    # the tensor's bytes are what they were
    content = path.read_bytes()
    start = content.index(b'"head.bias":{')
    for before, after in ((b'"F32"', b'"I32"'), (b"[11]", b"[11,1]")):
        changed = content[:start] + content[start:].replace(before, after, 1)
        length = int.from_bytes(content[:8], "little") + len(after) - len(before)
        path.write_bytes(length.to_bytes(8, "little") + changed[8:])
        with pytest.raises(WeightsError, match=r"head\.bias"):
            parity.load(path, framework=twin)


def test_a_truncated_file_is_refused(path):
    content = path.read_bytes()
    _, start = split(content)
    for length in (1, 7, 8, 9, 100, start - 1, start, start + 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        refused(path)


def test_a_truncated_file_is_refused_with_both_sizes(path):
    content = path.read_bytes()
    _, start = split(content)
    for length in (start, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        refused(path, "truncated", f"{length} bytes", f"{len(content)}")


def test_a_file_with_something_behind_it_is_refused(path):
    path.write_bytes(path.read_bytes() + b"\0" * 8)
    refused(path)


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"")
    refused(path, "not a safetensors file")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_not_run(tmp_path, protocol):
    path, trace = tmp_path / "weights.safetensors", tmp_path / "trace"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    path.write_bytes(pickle.dumps(Trap(), protocol))
    refused(path, "is a Python pickle, which can run code", "expected safetensors")
    assert not trace.exists()


def test_the_oldest_pickles_are_refused_too(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(pickle.dumps({"head.bias": [0.0, 1.0]}, 0))
    refused(path, "not a safetensors file")


def test_a_torch_file_is_refused(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"head.bias": torch.zeros(3)}, path)
    refused(path, "is a zip archive (a torch.save or .npz file)", "expected safetensors")
    torch.save({"head.bias": torch.zeros(3)}, path, _use_new_zipfile_serialization=False)
    refused(path, "is a Python pickle")


def test_an_npz_file_is_refused(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **arrays_of("float32"))
    refused(path, "is a zip archive (a torch.save or .npz file)", "expected safetensors")


@pytest.mark.parametrize("content", [b"{}", b"\x89PNG\r\n\x1a\n" + bytes(50), b"hello\nworld\n" * 9])
def test_any_other_file_is_refused(tmp_path, content):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    refused(path, "not a safetensors file")


def test_safetensors_of_someone_else_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(arrays_of("float32"), path)
    refused(path, "without vit.format, vit.schema, vit.preprocess, vit.dialect", "parity.save")
    save_file(arrays_of("float32"), path, metadata={"format": "pt"})
    refused(path, "without vit.format")


def test_a_later_format_is_refused(path, monkeypatch):
    monkeypatch.setattr(vit_config.files.seal, "FORMAT", "4")
    write_weights(path, CFG, arrays_of("float32"))
    monkeypatch.undo()
    refused(path, "format 4, this version reads 2 and 3")


def test_a_folder_is_refused(tmp_path):
    refused(tmp_path, "is a folder")


@pytest.mark.parametrize("twin", TWINS)
def test_a_missing_file_is_named(tmp_path, twin):
    path = tmp_path / "nowhere.safetensors"
    with pytest.raises(MissingFileError) as caught:
        parity.load(path, framework=twin)
    assert str(caught.value) == f"{path}: no such file or folder; give the path of a checkpoint"


@pytest.mark.parametrize("twin", TWINS)
def test_every_mismatch_is_told_at_once_and_nothing_changes(tmp_path, twin):
    module = {"jax": vit_jax.weights, "torch": vit_torch.weights}[twin]
    good = {name: array.astype(np.float32) for name, array in redrawn(CFG).items()}
    model = TWINS[twin].from_arrays(CFG, good)
    arrays = dict(good)
    del arrays["norm.bias"], arrays["blocks.0.ls1.gamma"]
    arrays["blocks.1.norm1.weight"] = np.ones(30, np.float32)
    arrays["head.weight"] = arrays["head.weight"].T
    arrays["cls_token"] = arrays["cls_token"].astype(np.float16)
    copies = {name: array.copy() for name, array in arrays.items()}
    path = tmp_path / "weights.safetensors"
    write_weights(path, CFG, arrays)
    for attempt in (
        lambda: module.to_state(model, arrays),
        lambda: module.from_arrays(CFG, arrays),
        lambda: parity.load(path, framework=twin),
    ):
        with pytest.raises(WeightsError) as caught:
            attempt()
        message = str(caught.value)
        assert "\n" not in message
        assert "5 mismatches, nothing was loaded" in message
        for problem in (
            "norm.bias: missing, the model has (30,)",
            "blocks.0.ls1.gamma: missing, the model has (30,)",
            "blocks.1.norm1.weight: unexpected, of shape (30,)",
            "head.weight: shape (30, 11) in the weights, (11, 30) in the model",
            "cls_token: type float16, the others are float32",
        ):
            assert problem in message
    assert_same_bits(TWINS[twin].to_arrays(model), good)
    assert_same_bits(arrays, copies)


@pytest.mark.parametrize("twin", TWINS)
def test_a_mismatch_names_the_file(tmp_path, twin):
    path = tmp_path / "weights.safetensors"
    arrays = arrays_of("float32")
    del arrays["norm.bias"]
    write_weights(path, CFG, arrays)
    refused(path, "norm.bias", "(30,)", read=lambda path: parity.load(path, framework=twin))


@pytest.mark.parametrize("twin", TWINS)
def test_integers_are_not_weights(twin):
    arrays = {name: np.ones(array.shape, np.int32) for name, array in redrawn(CFG).items()}
    with pytest.raises(WeightsError, match="all tensors are int32, expected a floating-point type"):
        TWINS[twin].from_arrays(CFG, arrays)


@pytest.mark.parametrize("twin", TWINS)
def test_a_model_shares_no_memory_with_the_arrays_it_was_made_of(twin):
    arrays = {name: array.astype(np.float32) for name, array in redrawn(CFG).items()}
    model = TWINS[twin].from_arrays(CFG, arrays)
    expected = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array[...] = 0.0
    assert_same_bits(TWINS[twin].to_arrays(model), expected)
    for array in TWINS[twin].to_arrays(model).values():
        with contextlib.suppress(ValueError):  # or it cannot be written to
            array[...] = 0.0
    assert_same_bits(TWINS[twin].to_arrays(model), expected)


def test_float64_needs_64_bit_jax(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, CFG, arrays_of("float64"))
    with pytest.raises(WeightsError, match=r"are float64, but JAX.*JAX_ENABLE_X64=1, as jax") as caught:
        parity.load(path, framework="jax")
    assert "\n" not in str(caught.value)
    assert parity.load(path, framework="torch").model.cls_token.dtype == torch.float64


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(path, monkeypatch, failing, error):
    before = path.read_bytes()
    model = vit_torch.from_arrays(CFG, arrays_of("float16"))

    def fail(*_):
        raise error

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(type(error)):
        parity.save(path, model, force=True)
    monkeypatch.undo()
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


def test_a_write_replaces_the_whole_file_if_it_is_asked_to(path):
    before, model = path.read_bytes(), vit_torch.from_arrays(CFG, arrays_of("float16"))
    with pytest.raises(ConfigError, match=r"already exists; give another path, or .*force=True"):
        parity.save(path, model)
    assert path.read_bytes() == before
    parity.save(path, model, force=True)
    assert os.listdir(path.parent) == [path.name]
    assert_same_bits(read_weights(path).arrays, arrays_of("float16"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_two_names_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    linux = sys.platform == "linux"  # in two steps elsewhere
    assert _exchanged(tmp_path / "one", tmp_path / "other") == linux
    assert (tmp_path / "one").read_text() == ("other" if linux else "one")


def test_writing_into_a_missing_folder_names_the_folder(tmp_path):
    model = vit_torch.from_arrays(CFG, arrays_of("float32"))
    with pytest.raises(MissingFileError, match=r"nowhere: no such folder to write w\.safetensors in"):
        parity.save(tmp_path / "nowhere" / "w.safetensors", model)


def test_writing_over_a_folder_is_refused(tmp_path):
    model = vit_torch.from_arrays(CFG, arrays_of("float32"))
    with pytest.raises(ConfigError, match="is a folder"):
        parity.save(tmp_path, model)
    assert os.listdir(tmp_path) == []


def test_an_unknown_framework_is_named(path):
    with pytest.raises(ConfigError, match=r"framework = 'tensorflow'; expected \"jax\" or \"torch\""):
        parity.load(path, framework="tensorflow")
