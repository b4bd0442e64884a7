"""Every library that is given a stranger's file ends in one line where the file is damaged, and says
nothing itself. The damage is random: `DAMAGE=WORD` draws another, continuous integration one a day."""

import ast
import io
import json
import os
import random
import sys
import warnings

import numpy as np
import pytest
import tifffile
import torch
from onnx import helper, numpy_helper

from parity.exporting.onnx_graph import graph_module
from parity.porting.reading.adapters import with_adapter
from parity.porting.text.tokens import read_tokens
from parity.verifier.programs.archives import find_code
from tests.parity.exporting.test_onnx_graph import written
from tests.parity.porting.formats.test_containers_damage import damage
from tests.parity.porting.text.test_tokens import CAUSAL
from tests.support import tokenizers_tiny
from tests.support.container_files import stored, write_file
from tests.support.sources import PACKAGES, modules_of
from vit_config import ConfigError, WeightsError
from vit_config.errors import USER_ERRORS
from vit_config.images.bands import read_bands
from vit_config.terminal import keep_libraries_silent

pytestmark = pytest.mark.quick

ROUNDS = 50
SEED = os.environ.get("DAMAGE", "")
IMAGES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

GUARDED = {
    "PIL": "vit_config/images/pixels.py", "simplejpeg": "vit_config/images/jpeg.py",
    "tifffile": "vit_config/images/bands.py", "tokenizers": "parity/porting/text/tokens.py",
    "onnx": "parity/exporting/onnx_graph/module.py", "torch": "parity/verifier/programs/files.py",
    "lz4": "parity/porting/formats/lz4.py", "msgpack": "parity/porting/formats/msgpack_reader.py",
    "tensorstore": "parity/porting/formats/tensorstore.py", "orbax": "parity/porting/formats/orbax.py",
    "pyarrow": "vit_train/sources/arrow.py", "tensorflow_datasets": "vit_train/sources/tfds_sets.py",
    "pydantic": "vit_config/base.py", "numpy": "parity/porting/formats/npz.py",
    "transformers": "parity/porting/reading/libraries/of_transformers.py",
}  # fmt: skip
"""Libraries that are given what is in a file, and where what they raise becomes one line."""
TRUSTED = {
    "absl", "etils", "filelock", "flatbuffers", "flax", "fsspec", "ftfy", "google_crc32c",
    "huggingface_hub", "jax", "matplotlib", "ml_dtypes", "onnxruntime", "onnxscript", "open_clip",
    "optax", "rich", "scipy", "sklearn", "tensorboard", "timm", "torchvision", "tyro",
    "vit_pytorch", "xxhash",
}  # fmt: skip
"""Libraries that are given this package's own values, or bytes that were checked."""


def test_every_library_is_guarded_or_given_nothing_of_a_stranger():
    found = set()
    for _, tree in modules_of():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    assert found - {*sys.stdlib_module_names} - {*PACKAGES} == GUARDED.keys() | TRUSTED
    assert {*GUARDED.values()} <= {path for path, _ in modules_of()}


def of_tiff(folder):
    file = io.BytesIO()
    tifffile.imwrite(
        file, np.arange(7 * 5 * 4, dtype=np.uint16).reshape(7, 5, 4), photometric="minisblack"
    )
    return file.getvalue(), read_bands


def of_tokenizer(folder):
    tokenizers_tiny.save_clip(folder)

    def use(content):
        (folder / "tokenizer.json").write_bytes(content)
        read_tokens(folder, CAUSAL).ids(["a photo of a dog"])

    return (folder / "tokenizer.json").read_bytes(), use


def of_onnx(folder):
    gains = numpy_helper.from_array(np.ones((1, 4), "f4"), "gains")
    nodes = [helper.make_node("Constant", [], ["gains"], value=gains),
             helper.make_node("Mul", ["images", "gains"], ["scaled"]),
             helper.make_node("Softmax", ["scaled"], ["y"], axis=-1)]  # fmt: skip
    path = folder / "a.onnx"
    written(path, nodes, {"images": IMAGES}, ["y"])

    def use(content):
        path.write_bytes(content)
        module = graph_module(path)
        module.evaluate([torch.from_numpy(IMAGES)] * len(module.inputs))

    return path.read_bytes(), use


def of_archive(folder):
    from tests.parity.verifier.programs.test_archives import Layer

    path = folder / "a.pt2"
    torch.export.save(torch.export.export(Layer(), (torch.ones(2, 3, 4, 5),)), path)

    def use(content):
        path.write_bytes(content)
        find_code(path)

    return path.read_bytes(), use


def of_adapter(folder):
    from parity.porting.opening.opened import open_checkpoint
    from vit_config.files.safetensors_stream import write_stream

    base = {"layer.weight": np.ones((4, 3), np.float32)}
    shapes = {"layer.lora_A.weight": (2, 3), "layer.lora_B.weight": (4, 2)}
    pair = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    (folder / "lora").mkdir()
    write_file(write_stream, folder / "base.safetensors", stored(base), {}, sealed=False)
    write_file(write_stream, folder / "lora/adapter_model.safetensors", stored(pair), {}, sealed=False)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 5, "rank_pattern": {"layer": 2}}

    def use(content):
        (folder / "lora/adapter_config.json").write_bytes(content)
        opened = open_checkpoint(folder / "base.safetensors")
        merged, _ = with_adapter(opened, folder / "lora", lambda: pytest.fail("no head is there"))
        merged.container.tensors["layer.weight"].load()

    return json.dumps(config).encode(), use


@pytest.mark.parametrize("kind", [of_tiff, of_tokenizer, of_onnx, of_archive, of_adapter])
def test_random_damage_ends_in_one_line(kind, tmp_path, capfd):
    content, use = kind(tmp_path)
    use(content)
    rng, refused = random.Random(f"{kind.__name__} {SEED}"), 0
    capfd.readouterr()
    with warnings.catch_warnings():
        keep_libraries_silent()
        for _ in range(ROUNDS):
            try:
                use(damage(rng, content))
            except USER_ERRORS as error:
                assert "\n" not in str(error)
                refused += 1
    assert refused
    assert capfd.readouterr() == ("", "")


ADAPTERS = (
    {"lora_alpha": 10**400}, {"lora_alpha": float("inf")}, {"alpha_pattern": [1]},
    {"rank_pattern": "x"},
)  # fmt: skip


@pytest.mark.parametrize("entries", ADAPTERS)
def test_an_adapter_says_numbers(entries, tmp_path):
    content, use = of_adapter(tmp_path)
    with pytest.raises((WeightsError, ConfigError), match=r"adapter_config\.json"):
        use(json.dumps(json.loads(content) | entries).encode())
