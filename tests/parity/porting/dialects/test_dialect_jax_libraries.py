"""Trees of bonsai, jimm and KerasHub by the names and shapes of their own classes, there and back.

`evidence/jax_libraries.py` recorded the trees, and runs the classes themselves.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from parity.porting.formats import open_container, write_hdf5
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.container_files import write_file
from tests.support.convert_cases import arrays_of
from tests.support.dialect_proof import assert_same_tensors
from vit_config import ViTConfig, write_weights
from vit_config.errors import OtherModelError, UnstatedError, WeightsError

TREES = json.loads((Path(__file__).parents[3] / "support" / "jax_trees.json").read_text())
CLASSIFIER = "KerasHub's classifier"
BODY = "layers/vi_t_backbone/"
UNWRITTEN = {"KerasHub's DINOv2": "layers/dinov2_embedding/vars/2"}
"""Of two position tables, that which the library computes from the other."""
NAMED_OTHERWISE = (
    "KerasHub's DINOv2, registers, table of another size",
    "KerasHub's DINOv2, gate, no mask token",
)
"""Trees that are read, see `test_dialect_keras_hub`, and written with other names or sizes."""


def written(name, folder):
    """A tree's schema, and a folder of its dialect with a model of that schema."""
    cfg = ViTConfig.from_json(json.dumps(TREES[name]["schema"]))
    write_weights(folder / "own.safetensors", cfg, arrays_of(cfg))
    convert(folder / "own.safetensors", to=TREES[name]["dialect"], out=folder / "out")
    return cfg, folder / "out"


def read(path, cfg):
    """The checkpoint, what is asked for answered."""
    try:
        return read_checkpoint(path)
    except UnstatedError as error:
        return read_checkpoint(path, given={field: getattr(cfg, field) for field in error.fields})


def assert_read(path, cfg):
    actual = read(path, cfg)
    same = actual.config.replace(
        layer_scale=cfg.layer_scale, init=cfg.init
    )  # which only begin a training
    assert same == cfg
    for name, array in arrays_of(cfg).items():
        np.testing.assert_array_equal(actual.arrays[name].load(), array, err_msg=name)
    return actual


@pytest.mark.parametrize("name", [name for name in TREES if name not in NAMED_OTHERWISE])
def test_trees_are_those_of_their_classes(name, tmp_path):
    cfg, out = written(name, tmp_path)
    source = assert_read(out, cfg)
    recorded = {each: tuple(shape) for each, shape in TREES[name]["names"].items()}
    recorded.pop(UNWRITTEN.get(name, ""), None)
    assert {name: each.shape for name, each in source.tensors.items()} == recorded
    convert(source, to="parity", out=tmp_path / "again.safetensors")
    convert(tmp_path / "again.safetensors", to=source.dialect.name, out=tmp_path / "back")
    assert_same_tensors(read(tmp_path / "back", cfg).tensors, source.tensors)


def test_a_keras_archive_and_a_preset_of_two_files_are_read(tmp_path):
    cfg, out = written(CLASSIFIER, tmp_path)
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name in ("config.json", "model.weights.h5"):
            archive.write(out / name, name)
    assert_read(tmp_path / "model.keras", cfg)
    preset = tmp_path / "preset"
    preset.mkdir()
    tensors = open_container(out).tensors
    backbone = {n.removeprefix(BODY): each for n, each in tensors.items() if n.startswith(BODY)}
    head = {n: each for n, each in tensors.items() if not n.startswith(BODY)}
    write_file(write_hdf5, preset / "model.weights.h5", backbone)
    write_file(write_hdf5, preset / "task.weights.h5", head)
    task = json.loads((out / "config.json").read_text())
    (preset / "task.json").write_text(json.dumps(task))
    (preset / "config.json").write_text(json.dumps(task["config"]["backbone"]))
    assert_read(preset, cfg)
    with zipfile.ZipFile(tmp_path / "packed.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(out / "config.json", "config.json")
        archive.write(out / "model.weights.h5", "model.weights.h5")
    with pytest.raises(WeightsError, match=r"model\.weights\.h5 is compressed"):
        read_checkpoint(tmp_path / "packed.keras")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("encoder/cls_token", "encoder/ln_post/scale",
          "encoder/transformer/blocks/layers/0/norm1/scale/value"), "jimm's ViT or CLIP"),
        (("vision_model/vision_position_ids", "vision_model/encoder/layers/norm1/scale"), "stacks"),
    ],
)  # fmt: skip
def test_what_no_schema_has_is_refused_by_name(names, said, tmp_path):
    np.savez(tmp_path / "a.npz", **{name: np.zeros(2, np.float32) for name in names})
    with pytest.raises(OtherModelError, match=said):
        read_checkpoint(tmp_path / "a.npz")
