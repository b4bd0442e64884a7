"""Files of the Flax models that transformers had: read with their config file, written, read again.

The classes are gone, so the tree is made of the PyTorch model by the name map that transformers had for
it, written down here once more, and saved by flax itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import pytest
import torch
from flax import traverse_util
from safetensors.numpy import load_file

from parity.porting.dialects import dialects, find_dialects
from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.recognition.recognise import has_marks
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, twin_logits
from tests.support.hf_models import CLASSES, MLP, SIZES, SQUARE, build, logits, outputs, reload
from tests.support.tiny import TINY, error
from vit_config import ConfigError, WeightsError

BEIT = {**SQUARE, **MLP, "use_relative_position_bias": True, "layer_scale_init_value": 0.1}
MODELS = {
    "vit classifier": ("ViTForImageClassification", "ViTConfig", {**SIZES, **MLP, **CLASSES}, logits),
    "vit pooler": ("ViTModel", "ViTConfig", {**SIZES, **MLP, "pooler_output_size": 30}, logits),
    "beit classifier": ("BeitForImageClassification", "BeitConfig", {**BEIT, **CLASSES}, logits),
    "beit class token": (
        "BeitForImageClassification",
        "BeitConfig",
        {**BEIT, **CLASSES, "use_mean_pooling": False, "use_absolute_position_embeddings": True},
        logits,
    ),
    "beit without a head": ("BeitModel", "BeitConfig", BEIT, logits),
    "dinov2 classifier": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        {**SQUARE, **CLASSES, "mlp_ratio": 2},
        logits,
    ),
    "clip projection": (
        "CLIPVisionModelWithProjection",
        "CLIPVisionConfig",
        {**SQUARE, **MLP, "projection_dim": 11},
        lambda model: outputs(model, lambda out: out.image_embeds),
    ),
    "clip tower": ("CLIPVisionModel", "CLIPVisionConfig", {**SQUARE, **MLP}, logits),
}
NAMES = {
    "dinov2": "hf-flax-dinov2",
    "vit": "hf-flax-vit",
    "beit": "hf-flax-beit",
    "clip": "hf-flax-clip-vision",
}


def flax_tree(files: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors by the names of PyTorch's files as Flax had them, by flat name."""
    tree = {}
    for name, value in files.items():
        if name.endswith("relative_position_index"):
            continue
        parent, _, leaf = name.rpartition(".")
        if leaf == "weight":
            if value.ndim == 1:
                leaf = "scale"
            elif parent.endswith("position_embedding"):
                leaf = "embedding"
            else:
                leaf = "kernel"
                value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T
        tree[f"{parent}.{leaf}".lstrip(".").replace(".", "/")] = np.ascontiguousarray(value)
    return tree


def saved(folder: Path, case: str):
    """A model, the tree that Flax would have, and the folder that it would have saved."""
    name, config, entries, pick = MODELS[case]
    model = build(name, config, **entries)
    model.save_pretrained(folder)
    files = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if name == "CLIPVisionModel":  # its Flax class kept the level that the files of version 5 have not
        files = {f"vision_model.{key}": value for key, value in files.items()}
    tree = flax_tree(files)
    write(folder, tree)
    return model, tree, pick(model)


def write(folder: Path, tree: dict[str, np.ndarray]) -> None:
    content = flax.serialization.msgpack_serialize(traverse_util.unflatten_dict(tree, sep="/"))
    (folder / "flax_model.msgpack").write_bytes(content)


def read(folder: Path) -> Any:
    content = flax.serialization.msgpack_restore((folder / "flax_model.msgpack").read_bytes())
    return traverse_util.flatten_dict(content, sep="/")


@pytest.mark.parametrize("case", MODELS)
def test_there_and_back(tmp_path, case):
    folder = tmp_path / "saved"
    _, tree, reference = saved(folder, case)
    dialect = NAMES[case.split()[0]]

    converted = convert(folder, to="parity", out=tmp_path / "own.safetensors")

    assert converted.target.source.dialect.name == dialect
    assert all("mask_token" in note for note in converted.target.source.notes)
    images = images_for(converted.config)
    expected = reference(images)
    for logits_of_twin in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(logits_of_twin, expected) <= 1e-12

    convert(tmp_path / "own.safetensors", to=dialect, out=tmp_path / "back")
    back = read(tmp_path / "back")
    assert back.keys() == tree.keys()
    for name, value in back.items():
        assert value.dtype == tree[name].dtype
        np.testing.assert_array_equal(value, tree[name], err_msg=name)
    again = read_checkpoint(tmp_path / "back")
    assert (again.dialect.name, again.config) == (dialect, converted.config)


def test_names_are_those_of_the_old_classes(tmp_path):
    saved(tmp_path / "vit", "vit classifier")
    tree = read(tmp_path / "vit")

    block = "vit/encoder/layer/2"
    assert tree["vit/embeddings/patch_embeddings/projection/kernel"].shape == (7, 5, 3, 30)
    assert tree[f"{block}/attention/attention/query/kernel"].shape == (30, 30)
    assert tree[f"{block}/intermediate/dense/kernel"].shape == (30, 44)
    assert {f"{block}/layernorm_before/scale", "vit/layernorm/scale", "classifier/kernel"} <= tree.keys()


@pytest.mark.parametrize("case", MODELS)
def test_it_is_taken_for_no_other(tmp_path, case):
    saved(tmp_path / "saved", case)
    tensors = open_container(tmp_path / "saved").tensors

    actual = [each.name for each in dialects() if has_marks(each, each.within_body(tensors))]
    assert actual == [NAMES[case.split()[0]]]


def test_a_flax_model_becomes_a_pytorch_one(tmp_path):
    """What transformers itself cannot do any more."""
    model, _, reference = saved(tmp_path / "saved", "vit classifier")

    convert(tmp_path / "saved", to="hf", out=tmp_path / "torch")

    images = images_for(TINY.replace(image_size=(21, 10)))
    assert error(reload()(tmp_path / "torch")(images), reference(images)) <= 1e-12
    assert model.config.model_type == "vit"


def test_of_both_towers_of_clip_the_image_tower_is_read(tmp_path):
    text = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 9}
    options = {"vision_config": {**SQUARE, **MLP}, "text_config": text, "projection_dim": 11}
    model = build("CLIPModel", "CLIPConfig", **options)
    model.save_pretrained(tmp_path / "saved")
    tree = flax_tree(load_file(tmp_path / "saved" / "model.safetensors"))
    (tmp_path / "saved" / "model.safetensors").unlink()
    write(tmp_path / "saved", tree)

    done = convert(tmp_path / "saved", to="parity", out=tmp_path / "own.safetensors")

    assert done.notes[0].startswith("left out 22 tensors that are no part of the encoder: logit_scale")
    images = images_for(done.config)
    with torch.no_grad():
        pooled = model.vision_model(torch.from_numpy(images)).pooler_output
        expected = model.visual_projection(pooled).numpy()
    for logits_of_twin in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(logits_of_twin, expected) <= 1e-12


def test_without_its_config_file_what_nobody_says_is_asked_for(tmp_path):
    saved(tmp_path / "saved", "vit classifier")
    (tmp_path / "saved" / "config.json").unlink()

    with pytest.raises(ConfigError, match="cannot infer num_heads, norm_eps, act"):
        read_checkpoint(tmp_path / "saved", given={"image_size": (21, 10)})


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"layerscale_value": 0.5}, "layerscale_value = 0.5, by whose square"),
        ({"use_swiglu_ffn": True}, "use_swiglu_ffn = True, but a schema supports only False"),
    ],
)
def test_what_its_code_of_dinov2_did_otherwise_is_refused(entries, said, tmp_path):
    saved(tmp_path / "saved", "dinov2 classifier")
    config = json.loads((tmp_path / "saved/config.json").read_text())
    (tmp_path / "saved/config.json").write_text(json.dumps({**config, **entries}))
    with pytest.raises(ConfigError, match=said):
        read_checkpoint(tmp_path / "saved")


def test_a_kernel_that_was_not_transposed_is_refused(tmp_path):
    _, tree, _ = saved(tmp_path / "saved", "vit classifier")
    name = "vit/encoder/layer/1/intermediate/dense/kernel"
    write(tmp_path / "saved", {**tree, name: tree[name].T})

    with pytest.raises(WeightsError, match=r"blocks\.1\.mlp\.fc1\.weight: shape \(30, 44\) in"):
        read_checkpoint(tmp_path / "saved")


def test_marks_are_of_the_flax_spelling():
    for dialect in find_dialects("hf-flax"):
        assert not any("." in mark for mark in dialect.marks)
        assert not any("." in name for row in dialect.tables[0] for name in row.theirs)
