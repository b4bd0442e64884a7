"""transformers' SigLIP and SigLIP 2: their image towers and classifiers, there and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from parity.porting.dialects.records.hf.relatives import mistaken_places, places
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import Logits, images_for, prove, redraw, twin_logits
from tests.support.hf_models import (
    CLASSES,
    build,
    logits,
    outputs,
    reload,
    save,
    transformers,
)
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError

SIZES = {
    "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 44,
    "patch_size": 5,
}  # fmt: skip
VISION = {**SIZES, "image_size": 15}
PATCHES = {**SIZES, "num_patches": 9}
TEXT = {
    "hidden_size": 30, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "vocab_size": 20, "max_position_embeddings": 6, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 1,
}  # fmt: skip


def whole(version: str, name: str, vision: dict[str, Any], **entries: Any) -> Any:
    """A model whose config holds those of both towers."""
    config = getattr(transformers, f"Siglip{version}Config")
    torch.manual_seed(0)
    made = config(text_config={**TEXT, "projection_size": 30}, vision_config=vision, **entries)
    return single(redraw(getattr(transformers, f"Siglip{version}{name}")(made)))


def single(model: Any) -> Any:
    """SigLIP 2 rounds its table to float32 before it fits it; values that are such already stay."""
    for name, parameter in model.named_parameters():
        if name.endswith("position_embedding.weight"):
            parameter.data = parameter.data.float().double()
    return model


def patchified(model: torch.nn.Module, *, pick=None, dtype=torch.float64) -> Logits:
    """What SigLIP 2 makes of square images, cut into patches of (row, column, channel)."""
    pick = pick or (lambda out: out.logits if "logits" in out else out.pooler_output)

    def run(images: np.ndarray) -> np.ndarray:
        B, C, H, W = images.shape
        p = 5
        cut = images.reshape(B, C, H // p, p, W // p, p).transpose(0, 2, 4, 3, 5, 1)
        pixels = torch.from_numpy(cut.reshape(B, -1, p * p * C)).to(dtype)
        with torch.no_grad():
            out = model(
                pixel_values=pixels,
                pixel_attention_mask=torch.ones(B, pixels.shape[1], dtype=torch.int64),
                spatial_shapes=torch.tensor([[H // p, W // p]] * B),
            )
        return pick(out).numpy()

    return run


@pytest.mark.parametrize("entries", [{}, {"hidden_act": "gelu"}, {"image_size": 17}], ids=str)
def test_the_tower(entries, tmp_path):
    model = build("SiglipVisionModel", "SiglipVisionConfig", **{**VISION, **entries})
    saved = save(model, tmp_path / "saved", transformers.SiglipImageProcessor())
    prove(saved, logits(model), to="hf-siglip-vision", out=tmp_path / "back", reload=reload())
    source = read_checkpoint(saved)
    assert source.preprocess.mean == (0.5, 0.5, 0.5)
    assert source.config.act == ("gelu" if "hidden_act" in entries else "gelu_tanh")
    assert source.config.norm_eps == 1e-6


def test_the_image_tower_of_both(tmp_path):
    """The text tower is left out and said; names begin with ``vision_model.``"""
    model = whole("", "Model", VISION)
    source = read_checkpoint(save(model, tmp_path / "saved"))
    assert source.dialect.name == "hf-siglip-vision"
    assert any("text_model" in note for note in source.notes)
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    images = images_for(source.config)
    for actual in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(actual, logits(model.vision_model)(images)) <= 1e-12
    convert(source, to="hf-siglip-vision", out=tmp_path / "back")
    assert error(reload()(tmp_path / "back")(images), logits(model.vision_model)(images)) <= 1e-12


@pytest.mark.parametrize("use_head", [True, False])
def test_the_classifier(use_head, tmp_path):
    """It averages the normalised patches and does not look at the attention pooling."""
    model = whole("", "ForImageClassification", {**VISION, "vision_use_head": use_head}, **CLASSES)
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to="hf-siglip-classifier", out=tmp_path / "back", reload=reload())
    notes = read_checkpoint(saved).notes
    assert any("head.attention" in note for note in notes) is use_head


def test_siglip2(tmp_path):
    """It takes patches and their places; of images of its own grid it is the same as one with images."""
    model = single(build("Siglip2VisionModel", "Siglip2VisionConfig", **PATCHES))
    saved = save(model, tmp_path / "saved")
    prove(
        saved,
        patchified(model),
        to="hf-siglip2-vision",
        out=tmp_path / "back",
        reload=reload(patchified),
    )
    assert read_checkpoint(saved).config.image_size == (15, 15)
    assert not (tmp_path / "back" / "preprocessor_config.json").exists()


def test_the_classifier_of_siglip2(tmp_path):
    model = whole("2", "ForImageClassification", PATCHES, **CLASSES)
    prove(
        save(model, tmp_path / "saved"),
        patchified(model),
        to="hf-siglip2-classifier",
        out=tmp_path / "back",
        reload=reload(patchified),
    )


def test_siglip_is_siglip2_of_images(tmp_path):
    """The two lay out one patch projection in two ways."""
    model = single(build("SiglipVisionModel", "SiglipVisionConfig", **VISION))
    saved = save(model, tmp_path / "saved")
    convert(saved, to="hf-siglip2-vision", out=tmp_path / "two")
    again = reload(patchified)(tmp_path / "two")
    images = images_for(read_checkpoint(saved).config)
    assert error(again(images), logits(model)(images)) <= 1e-12
    convert(tmp_path / "two", to="hf-siglip-vision", out=tmp_path / "one")
    assert error(reload()(tmp_path / "one")(images), logits(model)(images)) <= 1e-12


def mean_of_tokens(model: torch.nn.Module) -> Logits:
    """What a schema's mean pooling makes of a library's tokens."""
    return outputs(model, lambda out: out.last_hidden_state.mean(dim=1))


def test_the_tower_without_a_pooling_head(tmp_path):
    """It gives tokens; nothing has to be said, and whoever reads it is told."""
    model = build("SiglipVisionModel", "SiglipVisionConfig", **VISION, vision_use_head=False)
    saved = save(model, tmp_path / "saved", transformers.SiglipImageProcessor())
    prove(
        saved,
        mean_of_tokens(model),
        to="hf-siglip-tokens",
        out=tmp_path / "back",
        reload=reload(mean_of_tokens),
    )
    source = read_checkpoint(saved)
    assert source.config.pool == "mean"
    assert any("its library pools nothing" in note for note in source.notes)
    assert convert(source, to="hf", out=tmp_path / "hf").dialect == "hf-siglip-tokens"


def test_the_tower_of_janus(tmp_path):
    """Names of its own, a width of its MLP from a ratio, and queries without biases where it says so."""
    sizes = {**{n: v for n, v in VISION.items() if n != "intermediate_size"}, "mlp_ratio": 1.5}
    model = build("JanusVisionModel", "JanusVisionConfig", **sizes, attention_bias=False)
    saved = save(model, tmp_path / "saved")
    again = reload(mean_of_tokens, auto="JanusVisionModel")
    prove(saved, mean_of_tokens(model), to="hf-janus-vision", out=tmp_path / "back", reload=again)
    assert read_checkpoint(saved).config.act == "gelu"


def test_defaults_of_relatives(tmp_path):
    """What a config of Idefics 3 leaves out is not what one of SigLIP leaves out."""
    convert_headless(tmp_path / "saved", hidden_size=1152, num_attention_heads=16)
    entries = json.loads((tmp_path / "saved/config.json").read_text())
    sizes = {name: entries[name] for name in ("num_hidden_layers", "intermediate_size", "image_size")}
    sizes["image_size"] = 64
    (tmp_path / "saved/config.json").write_text(json.dumps({**sizes, "model_type": "idefics3"}))
    with pytest.raises(WeightsError, match=r"patch_size = 8x8 \(shapes\), but 32x32 \(config.json\)"):
        read_checkpoint(tmp_path / "saved")


def convert_headless(folder, **entries: Any) -> None:
    """A tower with patches of 8x8."""
    sizes = {"num_hidden_layers": 1, "intermediate_size": 8, "image_size": 16, "patch_size": 8}
    config = transformers.SiglipVisionConfig(**{**sizes, **entries}, vision_use_head=False)
    save(transformers.SiglipVisionModel(config), folder)


def test_positions_that_the_code_of_idefics_mistakes():
    """Where float32 puts two patches at one position, the function is not the schema's."""
    fields = {"image_size": (125, 125), "patch_size": (5, 5)}
    assert (places(27) == np.arange(27)).all()
    (said,) = mistaken_places({"model_type": "smolvlm_vision"}, fields)
    assert "a grid of 25x25" in said
    assert not list(mistaken_places({"model_type": "siglip_vision_model"}, fields))
    assert not list(mistaken_places({"model_type": "idefics3"}, {**fields, "image_size": (135, 135)}))


def test_what_no_schema_says(tmp_path):
    saved = save(build("Siglip2VisionModel", "Siglip2VisionConfig", **PATCHES), tmp_path / "two")
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "num_patches": 8}))
    with pytest.raises(ConfigError, match="num_patches = 8 is not a square number"):
        read_checkpoint(saved)


def test_what_it_cannot_say(tmp_path):
    saved = save(build("SiglipVisionModel", "SiglipVisionConfig", **VISION), tmp_path / "saved")
    with pytest.raises(ConfigError, match="its tower has no classifier"):
        convert(saved, to="hf-siglip-vision", out=tmp_path / "no", num_classes=3)
    with pytest.raises(ConfigError, match="squares alone"):
        convert(saved, to="hf-siglip-vision", out=tmp_path / "no", image_size=(15, 20))
    with pytest.raises(ConfigError, match=r"hf-clip-vision cannot hold this model: .*class_token"):
        convert(saved, to="hf-clip-vision", out=tmp_path / "no")
