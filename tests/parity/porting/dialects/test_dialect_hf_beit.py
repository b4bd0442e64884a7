"""transformers' BEiT against the library itself, in its attention that computes in the model's type."""

from pathlib import Path

import pytest

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, twin_logits
from tests.support.hf_models import (
    CLASSES,
    MLP,
    SIZES,
    SQUARE,
    build,
    class_token,
    logits,
    reload,
    save,
    save_memory,
)
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError

ENTRIES = {**SQUARE, **MLP}
RELATIVE = {"use_relative_position_bias": True}
CASES = {
    "mean": {**RELATIVE},
    "class token": {**RELATIVE, "use_mean_pooling": False},
    "absolute positions": {"use_absolute_position_embeddings": True},
    "every position": {**RELATIVE, "use_absolute_position_embeddings": True, "use_mask_token": True},
    "no positions, no scale": {"layer_scale_init_value": 0.0},
    "wide heads": {**RELATIVE, "head_dim": 8},
}


@pytest.mark.parametrize("case", CASES)
def test_classifiers(case: str, tmp_path: Path) -> None:
    model = build("BeitForImageClassification", "BeitConfig", **ENTRIES, **CLASSES, **CASES[case])
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to="hf-beit", out=tmp_path / "back", reload=reload())
    memory = save_memory(model, tmp_path / "memory")
    convert(memory, to="parity", out=tmp_path / "memory.safetensors")
    images = images_for(read_checkpoint(memory).config)
    for actual in twin_logits(tmp_path / "memory.safetensors", images).values():
        assert error(actual, logits(model)(images)) <= 1e-12


@pytest.mark.parametrize("mean", [True, False])
def test_bodies(mean: bool, tmp_path: Path) -> None:
    model = build("BeitModel", "BeitConfig", **ENTRIES, **RELATIVE, use_mean_pooling=mean)
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to="hf-beit", out=tmp_path / "back", reload=reload())


SHARED = {"use_shared_relative_position_bias": True}


@pytest.mark.parametrize("write", [save, save_memory])
def test_a_table_that_all_blocks_share(write, tmp_path: Path) -> None:
    model = build("BeitModel", "BeitConfig", **ENTRIES, **SHARED)
    own = tmp_path / "own.safetensors"
    done = convert(write(model, tmp_path / "saved"), to="parity", out=own)
    images = images_for(done.config)
    for actual in twin_logits(own, images).values():
        assert error(actual, logits(model)(images)) <= 1e-12


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("name", ["Data2VecVisionForImageClassification", "Data2VecVisionModel"])
def test_data2vec_is_a_beit(name: str, mean: bool, tmp_path: Path) -> None:
    """But for the bare model, which does not pool."""
    head = name.endswith("Classification")
    options = {"use_mean_pooling": mean, **(CLASSES if head else {})}
    model = build(name, "Data2VecVisionConfig", **ENTRIES, **RELATIVE, **options)
    saved = save(model, tmp_path / "saved")
    assert read_checkpoint(saved).dialect.name == "hf-data2vec-vision"
    pick = logits if head else class_token
    prove(saved, pick(model), to="hf-data2vec-vision", out=tmp_path / "back", reload=reload(pick))
    if head:
        convert(saved, to="hf-beit", out=tmp_path / "beit")
        images = images_for(read_checkpoint(saved).config)
        assert error(reload()(tmp_path / "beit")(images), logits(model)(images)) <= 1e-12


SEGMENTING = {"out_indices": [0, 1, 2, 3], "pool_scales": [1], "use_auxiliary_head": False}
HOSTS = {
    "BeitForSemanticSegmentation": ("beit", SEGMENTING),
    "BeitForMaskedImageModeling": ("beit", {}),
    "BeitBackbone": (None, {"out_indices": [3]}),
    "UperNetForSemanticSegmentation": ("backbone", {"out_indices": [3]}),
}


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("name", HOSTS)
def test_the_trunk_inside_of_another_model(name: str, mean: bool, tmp_path: Path) -> None:
    """use_mean_pooling speaks of a pooler that these have not; where it is false they have a norm."""
    part, more = HOSTS[name]
    config, entries = "BeitConfig", {**ENTRIES, **RELATIVE, **more, "use_mean_pooling": mean}
    if part == "backbone":
        inner = {**entries, "model_type": "beit"}
        config, entries = "UperNetConfig", {"backbone_config": inner, "use_auxiliary_head": False}
    host = build(name, config, **entries)
    own = tmp_path / "own.safetensors"
    done = convert(save(host, tmp_path / "saved"), to="parity", out=own, part=part)
    assert done.target.source.dialect.name == ("hf-beit-trunk" if mean else "hf-beit")
    images = images_for(done.config)
    trunk = getattr(host, part) if part else host
    expected = class_token(getattr(trunk, "beit", trunk))(images)
    for actual in twin_logits(own, images).values():
        assert error(actual, expected) <= 1e-12


@pytest.mark.parametrize(
    ("name", "entries", "said"),
    [
        ("BeitModel", {**RELATIVE, **SHARED}, "their sum is no table of a block's own"),
        (
            "BeitModel",
            {"image_size": (20, 15)},
            "image_size = .20, 15., and its positions are right for",
        ),
        ("BeitForMaskedImageModeling", {}, "masked images, whose norm .*--part beit takes"),
    ],
)
def test_refuses_what_no_schema_says(name: str, entries: dict, said: str, tmp_path: Path) -> None:
    saved = save(build(name, "BeitConfig", **{**ENTRIES, **entries}), tmp_path / "saved")
    with pytest.raises((ConfigError, WeightsError), match=said):
        read_checkpoint(saved)


def test_says_what_it_cannot_hold(tmp_path: Path) -> None:
    model = build("ViTForImageClassification", "ViTConfig", **SIZES, **MLP, **CLASSES)
    saved = save(model, tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"hf-beit cannot hold this model: k_bias = .*is not zero"):
        convert(saved, to="hf-beit", out=tmp_path / "back")
