"""transformers' CLIP: its image towers and its classifier, there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, redraw, twin_logits
from tests.support.hf_models import CLASSES, build, logits, outputs, reload, save, transformers
from tests.support.tiny import error
from vit_config import ConfigError

pytestmark = pytest.mark.quick

VISION = {
    "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 44,
    "image_size": 15, "patch_size": 5,
}  # fmt: skip
TEXT = {
    "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "vocab_size": 20, "max_position_embeddings": 6, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 1,
}  # fmt: skip


def embeds(model: torch.nn.Module):
    return outputs(model, lambda out: out.image_embeds)


def whole(name: str, **entries: Any) -> Any:
    """A model whose config holds those of both towers."""
    config = transformers.CLIPConfig(
        text_config=TEXT,
        vision_config={**VISION, **entries.pop("vision", {})},
        projection_dim=7,
        **entries,
    )
    torch.manual_seed(0)
    return redraw(getattr(transformers, name)(config))


@pytest.mark.parametrize(
    "entries", [{}, {"hidden_act": "gelu", "layer_norm_eps": 1e-3}, {"image_size": 17}], ids=str
)
def test_the_tower(entries, tmp_path):
    """Its file states everything; an image that patches do not fill loses its edge."""
    model = build("CLIPVisionModel", "CLIPVisionConfig", **{**VISION, **entries})
    saved = save(model, tmp_path / "saved", transformers.CLIPImageProcessor())
    prove(saved, logits(model), to="hf-clip-vision", out=tmp_path / "back", reload=reload())
    source = read_checkpoint(saved)
    assert source.preprocess.mean[0] == 0.48145466
    assert source.config.act == ("gelu" if "hidden_act" in entries else "quick_gelu")


def test_the_tower_with_its_projection(tmp_path):
    model = build("CLIPVisionModelWithProjection", "CLIPVisionConfig", **VISION, projection_dim=7)
    again = reload(embeds, "CLIPVisionModelWithProjection")
    saved = save(model, tmp_path / "saved")
    prove(saved, embeds(model), to="hf-clip-vision", out=tmp_path / "back", reload=again)
    assert "id2label" not in json.loads((tmp_path / "back" / "config.json").read_text())


def test_names_without_what_stands_before_them(tmp_path):
    """Files of the tower have had ``vision_model.`` before each name and have not."""
    model = build("CLIPVisionModel", "CLIPVisionConfig", **VISION)
    folder = save(model, tmp_path / "saved")
    (folder / "model.safetensors").unlink()
    state = model.state_dict()
    state["embeddings.position_ids"] = torch.arange(10)[None]  # of older releases
    for prefix in ("", "vision_model."):
        torch.save({f"{prefix}{n}": each for n, each in state.items()}, folder / "pytorch_model.bin")
        convert(folder, to="parity", out=tmp_path / "own.safetensors", force=True)
        source = read_checkpoint(tmp_path / "own.safetensors")
        images = images_for(source.config)
        for actual in twin_logits(tmp_path / "own.safetensors", images).values():
            assert error(actual, logits(model)(images)) <= 1e-12


def test_the_image_tower_of_both(tmp_path):
    """The text tower is left out and said."""
    model = whole("CLIPModel")
    saved = save(model, tmp_path / "saved")
    source = read_checkpoint(saved)
    assert (source.dialect.name, source.config.num_classes) == ("hf-clip-vision", 7)
    assert any("text_model" in note for note in source.notes)
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    images = images_for(source.config)
    with torch.no_grad():
        actual = model.get_image_features(pixel_values=torch.from_numpy(images))
    expected = actual if isinstance(actual, torch.Tensor) else actual.pooler_output
    for ours in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(ours, expected.numpy()) <= 1e-12
    convert(source, to="hf-clip-vision", out=tmp_path / "back")
    again = reload(embeds, "CLIPVisionModelWithProjection")(tmp_path / "back")
    assert error(again(images), expected.numpy()) <= 1e-12


def test_what_a_config_leaves_out_has_the_librarys_default(tmp_path):
    saved = save(whole("CLIPModel"), tmp_path / "saved")
    config = json.loads((saved / "config.json").read_text())
    for name in ("layer_norm_eps", "hidden_act", "num_channels"):
        del config["vision_config"][name]
    (saved / "config.json").write_text(json.dumps(config))
    cfg = read_checkpoint(saved).config
    assert (cfg.norm_eps, cfg.act, cfg.in_channels) == (1e-5, "quick_gelu", 3)


def test_the_classifier(tmp_path: Path):
    """It averages patches without a norm; the tower has one all the same, and it is written."""
    model = whole("CLIPForImageClassification", **CLASSES)
    norm = model.vision_model.post_layernorm
    norm.weight.data.fill_(1.0)
    norm.bias.data.fill_(0.0)
    saved = save(model, tmp_path / "saved", transformers.CLIPImageProcessor())
    prove(saved, logits(model), to="hf-clip-classifier", out=tmp_path / "back", reload=reload())
    source = read_checkpoint(saved)
    assert (source.config.final_norm, source.config.pool) == ("none", "mean")
    assert source.preprocess.class_names == ("tench", "crane", "crane, a bird")


def test_what_it_cannot_say(tmp_path):
    model = build("CLIPVisionModel", "CLIPVisionConfig", **VISION)
    saved = save(model, tmp_path / "saved")
    other = save(whole("CLIPForImageClassification", **CLASSES), tmp_path / "other")
    with pytest.raises(ConfigError, match=r"hf-clip-vision cannot hold this model: .*pool = mean"):
        convert(other, to="hf-clip-vision", out=tmp_path / "no")
    with pytest.raises(ConfigError, match=r"hf-vit cannot hold this model: .*pre_norm = true"):
        convert(saved, to="hf-vit", out=tmp_path / "no")
    with pytest.raises(ConfigError, match="squares alone"):
        convert(saved, to="hf-clip-vision", out=tmp_path / "no", image_size=(15, 20))
