"""KerasHub's DINOv2, DINOv3 and SigLIP from files as its own classes name, shape and number them.

`evidence/jax_libraries.py` recorded the names, and runs the classes themselves.
"""

import json
import shutil

import numpy as np
import pytest

from parity.porting.dialects import find_dialects
from parity.porting.formats import Stored, write_hdf5
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.container_files import write_file
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import Rope, ViTConfig, write_weights
from vit_config.errors import ConfigError, UnstatedError, WeightsError

V2, V3 = "layers/dinov2_embedding/vars/", "layers/dinov3_embedding/vars/"
SQUARE = TINY.replace(image_size=(12, 12), patch_size=(4, 4), num_classes=0, pool="class")
DINOV2 = SQUARE.replace(layer_scale=1.0, register_tokens=2, pos_embed_prefix="class", norm_eps=1e-6)
DINOV3 = SQUARE.replace(
    image_size=(12, 8), hidden_size=40, layer_scale=1.0, register_tokens=2, pos_embed="none",
    rope=Rope(kind="centered", theta=50.0, pairs="half"), dynamic_image_size=True, k_bias=False,
    norm_eps=1e-5,
)  # fmt: skip
SIGLIP = SQUARE.replace(class_token=False, pool="map", act="gelu_tanh", norm_eps=1e-6)


def written(cfg, name, folder):
    """A folder of a dialect, its config.json and its tensors, the names changed as a test likes."""
    write_weights(folder / "own.safetensors", cfg, arrays_of(cfg))
    convert(folder / "own.safetensors", to=f"keras-hub-{name}", out=folder / "out")
    config = json.loads((folder / "out" / "config.json").read_text())
    source = read_checkpoint(folder / "out")
    return config, {name: each.load() for name, each in source.container.tensors.items()}


def saved(config, tensors, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_file(
        write_hdf5,
        folder / "model.weights.h5",
        {name: Stored.of(each) for name, each in tensors.items()},
    )
    return folder


def alone(folder):
    """The weights without the config.json beside them."""
    return shutil.copy(folder / "model.weights.h5", folder.parent / "alone.weights.h5")


def embedding(tensors, *own):
    """DINOv2's weights with others of the embedding's own, which Keras numbers."""
    rest = {name: each for name, each in tensors.items() if not name.startswith(V2)}
    return {**rest, **{f"{V2}{i}": each for i, each in enumerate(own) if each is not None}}


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("registers", [2, 0])
@pytest.mark.parametrize("rows", [26, 10])
def test_dinov2_is_read_with_the_positions_that_it_adds(mask, registers, rows, tmp_path):
    cfg = DINOV2.replace(register_tokens=registers, pos_embed_prefix="class" if registers else "auto")
    config, tensors = written(cfg, "dinov2", tmp_path)
    own = arrays_of(cfg)
    token = np.full((1, cfg.hidden_size), 5.0)
    tokens = [own["cls_token"], *[token] * mask, *[own.get("reg_token")] * bool(registers)]
    other = np.full((1, rows, cfg.hidden_size), 7.0)
    config["config"]["use_mask_token"] = mask
    tensors = embedding(tensors, *tokens, own["pos_embed"], other)
    source = read_checkpoint(saved(config, tensors, tmp_path / "file"))
    assert source.config == cfg
    for name, array in own.items():
        np.testing.assert_array_equal(source.arrays[name].load(), array, err_msg=name)
    assert any("position tables" in note for note in source.notes)
    assert any(f"{V2}1" in note for note in source.notes) == mask


def test_what_is_written_of_dinov2_has_the_table_that_the_library_opens(tmp_path):
    _, tensors = written(DINOV2, "dinov2", tmp_path)
    assert [tensors[f"{V2}{i}"].shape[1] for i in (0, 1, 2, 4)] == [1, DINOV2.hidden_size, 2, 10]
    assert f"{V2}3" not in tensors


@pytest.mark.parametrize("registers", [2, 0])
def test_dinov3_is_read_with_and_without_registers(registers, tmp_path):
    cfg = DINOV3.replace(register_tokens=registers)
    config, tensors = written(cfg, "dinov3", tmp_path)
    source = read_checkpoint(saved(config, tensors, tmp_path / "file"))
    assert source.config == cfg
    assert not np.any(source.place.tensors[f"{V3}1"].load())  # the token of masked patches
    bare, said = (
        alone(tmp_path / "file"),
        "cannot infer num_heads" if registers else "of a known dialect",
    )
    with pytest.raises((UnstatedError, WeightsError), match=said):
        read_checkpoint(bare)
    config["config"]["use_mask_token"] = False
    with pytest.raises(ConfigError, match="use_mask_token = False"):
        read_checkpoint(saved(config, tensors, tmp_path / "file"))


def test_siglip_is_read_beside_its_text_tower(tmp_path):
    tower, tensors = written(SIGLIP, "siglip", tmp_path)
    inside = {f"layers/sig_lip_vision_encoder/{name}": each for name, each in tensors.items()}
    text = {"layers/sig_lip_head/vars/0": np.zeros(()), "layers/sig_lip_text_encoder/x": np.ones(3)}
    host = {"class_name": "SigLIPBackbone", "config": {"vision_encoder": tower, "text_encoder": {}}}
    source = read_checkpoint(saved(host, {**inside, **text}, tmp_path / "file"))
    assert source.config == SIGLIP.replace(pos_embed_resize="bicubic", init="timm")
    assert any("left out 2 tensors" in note for note in source.notes)


def test_siglip_of_what_no_schema_has_is_refused(tmp_path):
    config, tensors = written(SIGLIP, "siglip", tmp_path)
    entries = config["config"]
    entries["layer_norm_epsilon"] = 1e-5  # of the blocks; that of the last norm is fixed
    with pytest.raises(WeightsError, match="norm_eps = 1e-05"):
        read_checkpoint(saved(config, tensors, tmp_path / "file"))
    entries |= {"layer_norm_epsilon": 1e-6, "intermediate_activation": "leaky_relu"}
    with pytest.raises(ConfigError, match="leaky_relu"):
        read_checkpoint(saved(config, tensors, tmp_path / "file"))
    entries["intermediate_activation"] = "gelu"
    assert read_checkpoint(saved(config, tensors, tmp_path / "file")).config.act == "gelu"
    places = next(name for name, each in tensors.items() if each.dtype.kind == "i")
    tensors[places] = tensors[places][:, ::-1].copy()  # the library looks its positions up by these
    with pytest.raises(WeightsError, match=f"{places} is not what"):
        read_checkpoint(saved(config, tensors, tmp_path / "file"))


def test_a_file_of_siglip_without_its_config_asks_for_epsilon_and_activation(tmp_path):
    written(SIGLIP, "siglip", tmp_path)
    with pytest.raises(UnstatedError, match="norm_eps, act"):
        read_checkpoint(alone(tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image_size": (12, 8)}, "right for squares alone"),
        ({"num_classes": 3, "pool": "class_mean"}, "pool = class_mean"),
        ({"mlp": "swiglu_packed", "act": "silu", "mlp_dim": 20}, "multiple of 8"),
    ],
)
def test_what_dinov2_has_not_is_not_written(change, said, tmp_path):
    cfg = ViTConfig(**{**DINOV2.model_dump(), **change})
    write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg))
    with pytest.raises(ConfigError, match=said):
        convert(tmp_path / "own.safetensors", to="keras-hub-dinov2", out=tmp_path / "out")


def test_a_vit_without_classes_is_pooled_by_its_class_token_alone():
    (dialect,) = find_dialects("keras-hub-vit")
    for classes, pool, open_ in ((0, "class", []), (0, "mean", ["pool"]), (7, "mean", ["pool_prefix"])):
        assert [*dialect.problems(SQUARE.replace(num_classes=classes, pool=pool))] == open_
