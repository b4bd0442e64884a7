"""preprocessor_config.json, the names of classes, and which of its models the family chooses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parity.porting.dialects import dialects
from parity.porting.dialects.records.hf import preprocessor
from parity.porting.formats import open_container
from parity.porting.models.files import save as save_own
from parity.porting.opening.opened import Opened
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.recognition.recognise import find
from parity.porting.writing.conversion import convert
from tests.support.hf_models import (
    CLASSES,
    MLP,
    SIZES,
    SQUARE,
    build,
    reload,
    save,
    save_memory,
    transformers,
)
from tests.support.tiny import TINY
from vit_config import Preprocess, ViTConfig
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD

pytestmark = pytest.mark.quick

SQUASHED = Preprocess(interpolation="bilinear", crop_mode="squash")
READ = {
    "ViT": (("ViTImageProcessor", {}), SQUASHED),
    "DeiT": (
        ("DeiTImageProcessor", {}),
        Preprocess(interpolation="bicubic", crop_mode="squash", crop_fraction=0.875),
    ),
    "BEiT, as version 4 wrote it": (
        ("BeitImageProcessor", {"size": {"height": 256, "width": 256}, "do_center_crop": True}),
        Preprocess(interpolation="bicubic", crop_mode="squash", crop_fraction=0.875),
    ),
    "DINOv2": (
        (
            "BitImageProcessor",
            {"size": {"shortest_edge": 248}, "image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD},
        ),
        Preprocess(mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=224 / 248),
    ),
    "DINOv3": (
        ("DINOv3ViTImageProcessor", {}),
        SQUASHED.replace(mean=IMAGENET_MEAN, std=IMAGENET_STD),
    ),
    "another size than the model's": (
        ("ViTImageProcessor", {"size": {"height": 112, "width": 96}}),
        SQUASHED.replace(image_size=(112, 96)),
    ),
    "not normalised": (
        ("ViTImageProcessor", {"do_normalize": False, "resample": 0}),
        Preprocess(mean=(0, 0, 0), std=(1, 1, 1), interpolation="nearest", crop_mode="squash"),
    ),
    "another scale": (
        ("ViTImageProcessor", {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.5, 0.25]}),
        SQUASHED.replace(mean=(0.5, 0.25, 0.125), std=(0.25,) * 3),
    ),
    "not scaled": (
        ("ViTImageProcessor", {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [51.0] * 3}),
        SQUASHED.replace(mean=(0.5,) * 3, std=(0.2,) * 3),
    ),
    "no fixed size": (("BitImageProcessor", {"do_center_crop": False}), None),
}


@pytest.mark.parametrize("case", READ)
def test_reads_what_the_library_writes(case: str, tmp_path: Path) -> None:
    (name, entries), expected = READ[case]
    getattr(transformers, name)(**entries).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "preprocessor_config.json").read_text())
    actual = preprocessor.read(content, "ViTImageProcessor", (224, 224))
    if expected is None or actual is None:
        assert actual is expected
    else:
        assert actual == expected
        again = preprocessor.entries(actual, (224, 224), (16, 16))
        assert preprocessor.read(again, "", (224, 224)) == actual


@pytest.mark.parametrize("name", preprocessor.DEFAULTS)
def test_what_a_file_leaves_out_is_the_librarys_default(name: str, tmp_path: Path) -> None:
    kind = f"{name}ImageProcessor"
    getattr(transformers, kind)().save_pretrained(tmp_path)
    content = json.loads((tmp_path / "preprocessor_config.json").read_text())
    expected = preprocessor.read({**content, "image_processor_type": kind}, "", (224, 224))
    assert preprocessor.read({"image_processor_type": kind}, "", (224, 224)) == expected


def test_reads_files_of_feature_extractors() -> None:
    content = {"feature_extractor_type": "ViTFeatureExtractor", "size": 224, "resample": 2}
    assert preprocessor.read(content, "", (224, 224)) == SQUASHED
    content = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224}
    assert preprocessor.read(content, "", (224, 224)).crop_mode == "center"  # pyright: ignore
    assert preprocessor.read({"image_processor_type": "Owlv2ImageProcessor"}, "", (224, 224)) is None
    assert preprocessor.read({"size": {"longest_edge": 224}}, "ViTImageProcessor", (224, 224)) is None
    for switch in preprocessor.BEYOND:
        assert preprocessor.read({switch: True}, "Gemma3ImageProcessor", (224, 224)) is None
    assert preprocessor.read({}, "Gemma3ImageProcessor", (224, 224)) is not None


@pytest.mark.parametrize(
    "wrong", [{"resample": 9}, {"resample": -1}, {"do_center_crop": True}, {"rescale_factor": 0}]
)
def test_what_the_library_would_refuse_is_unknown(wrong) -> None:
    assert preprocessor.read({"size": 224, **wrong}, "ViTImageProcessor", (224, 224)) is None


def test_pixels_that_a_model_cannot_take_are_told(tmp_path: Path) -> None:
    model = build("ViTForImageClassification", "ViTConfig", **SIZES, **MLP, **CLASSES)
    saved = save(model, tmp_path / "saved", transformers.ViTImageProcessor())
    height, width = read_checkpoint(saved).config.image_size
    warned = convert(saved, to="parity", out=tmp_path / "a.safetensors").warnings
    size = f"{height}x{width}"
    assert warned == (
        f"images are prepared in 224x224, and the model takes {size}; --image-size fits it",
    )
    (saved / preprocessor.FILE).write_text('{"do_pad": true}')
    (warned,) = convert(saved, to="parity", out=tmp_path / "b.safetensors").warnings
    assert "preprocessor_config.json prepares pixels in a way that is not known here" in warned


WRITTEN = {
    "squashed": SQUASHED,
    "squashed and cropped": SQUASHED.replace(crop_fraction=0.875),
    "cropped": Preprocess(crop_fraction=30 / 36),
    "whole": Preprocess(interpolation="lanczos", image_size=(24, 24)),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_the_library_does_what_is_written(case: str, tmp_path: Path) -> None:
    """Its processor and the project's own make the same pixels, up to how they round."""
    from vit_train.data.images import fit_image

    preprocess = WRITTEN[case]
    size = preprocess.image_size or (30, 30)
    content = preprocessor.entries(preprocess, (30, 30), (5, 5))
    assert content is not None
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    noise = np.random.default_rng(0).integers(0, 256, (41, 57, 3), dtype=np.uint8)
    actual = processor(Image.fromarray(noise), return_tensors="np")["pixel_values"][0]
    expected = preprocess.normalise(fit_image(noise, size, preprocess)).transpose(2, 0, 1)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_what_no_processor_does_is_not_written() -> None:
    assert preprocessor.entries(Preprocess(), (30, 20), (5, 5)) is None
    assert preprocessor.entries(Preprocess(crop_mode="border"), (30, 30), (5, 5)) is None


def test_names_of_classes_and_pixels_go_both_ways(tmp_path: Path) -> None:
    names = ("tench", "crane", "crane, a bird")
    model = build("ViTForImageClassification", "ViTConfig", **SIZES, **MLP, **CLASSES)
    size = {"height": 21, "width": 10}
    saved = save(model, tmp_path / "saved", transformers.ViTImageProcessor(size=size))
    source = read_checkpoint(saved)
    assert source.preprocess == SQUASHED.replace(class_names=names)
    convert(source, to="hf-vit", out=tmp_path / "back")
    reload()(tmp_path / "back")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "back")
    assert tuple((config.id2label or {}).values()) == names
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "back")
    assert dict(processor.size)["height"] == 21


def test_names_that_the_library_makes_up_are_none(tmp_path: Path) -> None:
    model = build("Dinov2ForImageClassification", "Dinov2Config", **SQUARE, num_labels=4)
    saved = save(model, tmp_path / "saved", transformers.BitImageProcessor())
    source = read_checkpoint(saved)
    assert source.preprocess is not None
    assert source.preprocess.class_names is None


FAMILY = {
    "hf-vit": {},
    "hf-vit without a head": {"num_classes": 0},
    "hf-ijepa": {"class_token": False, "pool": "mean"},
    "hf-deit": {"register_tokens": 1},
    "hf-deit distilled": {"distill_token": True},
    "hf-dinov2": {"layer_scale": 0.1, "num_classes": 0, "image_size": (15, 15), "patch_size": (5, 5)},
    "hf-beit": {
        "rel_pos_bias": True, "pos_embed": "none", "k_bias": False, "pool": "mean",
        "final_norm": "post_pool", "image_size": (15, 15), "patch_size": (5, 5), "layer_scale": 0.1,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", FAMILY)
def test_the_family_chooses_the_member_that_fits(case: str, tmp_path: Path) -> None:
    cfg = TINY.replace(mlp_dim=120, **FAMILY[case])
    assert chosen(cfg, tmp_path) == case.split()[0]


def chosen(cfg: ViTConfig, folder: Path) -> str:
    from vit_torch.model import ViT

    path = folder / "own.safetensors"
    save_own(path, ViT(cfg))
    return convert(path, to="hf", out=folder / "hf").dialect


RECOGNISED = {
    "hf-vit": ("ViTModel", "ViTConfig", MLP),
    "hf-vit no bias": ("ViTModel", "ViTConfig", {**MLP, "qkv_bias": False}),
    "hf-deit": ("DeiTModel", "DeiTConfig", MLP),
    "hf-ijepa": ("IJepaModel", "IJepaConfig", MLP),
    "hf-beit": ("BeitModel", "BeitConfig", MLP),
    "hf-beit like ViT": (
        "BeitModel",
        "BeitConfig",
        {**MLP, "layer_scale_init_value": 0.0, "use_absolute_position_embeddings": True},
    ),
    "hf-dinov2": ("Dinov2Model", "Dinov2Config", {}),
    "hf-dinov2-registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {}),
    "hf-dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig", {**MLP, "num_attention_heads": 3}),
}


@pytest.mark.parametrize("case", RECOGNISED)
def test_tensors_alone_tell_the_dialect(case: str, tmp_path: Path) -> None:
    name, config, entries = RECOGNISED[case]
    model = build(name, config, **{**SQUARE, **entries})
    container = open_container(save(model, tmp_path / "saved") / "model.safetensors")
    alone = replace(container, sidecars={})
    assert find(Opened(alone, ""), dialects()).dialect.name == case.split()[0]
    memory = open_container(save_memory(model, tmp_path / "memory") / "pytorch_model.bin")
    assert find(Opened(replace(memory, sidecars={}), ""), dialects()).dialect.name == case.split()[0]
