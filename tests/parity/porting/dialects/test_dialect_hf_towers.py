"""Image towers of transformers: BLIP, BLIP-2, OWL-ViT, AIMv2, InternVL, TIPSv2, Sapiens2 and
CLIP's relatives."""

import json

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, twin_logits
from tests.support.hf_models import MLP, SQUARE, build, outputs, reload, save, transformers
from tests.support.tiny import error
from vit_config import ConfigError
from vit_config.errors import OtherModelError

TOWER = {**SQUARE, **MLP}


def first(out):
    return out.last_hidden_state[:, 0]


def mean(out):
    return out.last_hidden_state.mean(1)


def pooled(out):
    return out.pooler_output


TOWERS = {
    "BLIP": ("BlipVisionModel", "BlipVisionConfig", {}, "hf-blip-vision", first),
    "BLIP-2": ("Blip2VisionModel", "Blip2VisionConfig", {}, "hf-blip2-vision", first),
    "BLIP-2 without biases": (
        "Blip2VisionModel", "Blip2VisionConfig", {"qkv_bias": False}, "hf-blip2-vision", first,
    ),
    "OWL-ViT": ("OwlViTVisionModel", "OwlViTVisionConfig", {}, "hf-owlvit-vision", pooled),
    "AIMv2": ("Aimv2VisionModel", "Aimv2VisionConfig", {}, "hf-aimv2-tokens", mean),
    "AIMv2 with biases": (
        "Aimv2VisionModel", "Aimv2VisionConfig", {"qkv_bias": True, "mlp_bias": True},
        "hf-aimv2-tokens", mean,
    ),
    "InternVL": ("InternVLVisionModel", "InternVLVisionConfig", {}, "hf-internvl-vision", first),
    "InternVL, RMSNorm": (
        "InternVLVisionModel", "InternVLVisionConfig", {"norm_type": "rms_norm", "attention_bias": True},
        "hf-internvl-vision", first,
    ),
    "InternVL, normed": (
        "InternVLVisionModel", "InternVLVisionConfig", {"use_mean_pooling": False},
        "hf-internvl-vision", first,
    ),
    "TIPSv2": ("Tipsv2VisionModel", "Tipsv2VisionConfig", {}, "hf-tipsv2-vision", pooled),
    "TIPSv2, gated": (
        "Tipsv2VisionModel", "Tipsv2VisionConfig", {"use_swiglu_ffn": True, "num_register_tokens": 2},
        "hf-tipsv2-vision", pooled,
    ),
    "TIPSv2, the ratio of so400m": (
        "Tipsv2VisionModel", "Tipsv2VisionConfig", {"mlp_ratio": 4304 / 1152}, "hf-tipsv2-vision",
        pooled,
    ),
    "TIPSv2, gated, of another ratio": (
        "Tipsv2VisionModel", "Tipsv2VisionConfig", {"use_swiglu_ffn": True, "mlp_ratio": 3.3},
        "hf-tipsv2-vision", pooled,
    ),
    "Sapiens2": (
        "Sapiens2Model", "Sapiens2Config",
        {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads_per_layer": [6, 3, 6],
         "image_size": (15, 20), "num_register_tokens": 2},
        "hf-sapiens2", pooled,
    ),
    "Sapiens2, no norm of queries": (
        "Sapiens2Model", "Sapiens2Config",
        {"hidden_size": 48, "num_attention_heads": 6, "key_bias": False, "use_qk_norm": False,
         "num_first_full_attention_layers": 1, "num_last_full_attention_layers": 1,
         "num_key_value_attention_heads": 2},
        "hf-sapiens2", pooled,
    ),
}  # fmt: skip
RELATIVES = {
    "AltCLIP": "AltCLIP",
    "ChineseCLIP": "ChineseCLIP",
    "CLIPSeg": "CLIPSeg",
    "MetaCLIP 2": "MetaClip2",
}


@pytest.fixture
def wide(monkeypatch):
    """Its RMSNorm rounds to float32 inside; here it does not."""
    for module in (
        transformers.models.aimv2.modeling_aimv2,
        transformers.models.internvl.modeling_internvl,
        transformers.models.sapiens2.modeling_sapiens2,
    ):
        monkeypatch.setattr(module.torch, "float32", torch.float64)


@pytest.mark.parametrize("name", TOWERS)
def test_towers(name, tmp_path, wide):
    kind, config, entries, dialect, pick = TOWERS[name]
    more = {"use_head": False} if "Aim" in kind else {}
    model = build(kind, config, **{**TOWER, **entries, **more})
    saved = save(model, tmp_path / "saved")
    again = reload(lambda output: outputs(output, pick), auto=kind)
    prove(saved, outputs(model, pick), to=dialect, out=tmp_path / "back", reload=again)


@pytest.mark.parametrize("name", RELATIVES)
def test_relatives_of_clip(name, tmp_path):
    kind = RELATIVES[name]
    model = build(f"{kind}VisionModel", f"{kind}VisionConfig", **TOWER)
    saved = save(model, tmp_path / "saved")
    prove(saved, outputs(model, pooled), to="hf-clip-vision", out=tmp_path / "back")


TEXT = {"vocab_size": 50, "hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 12}  # fmt: skip


@pytest.mark.parametrize(("kind", "pick"), [("AltCLIP", pooled), ("Aimv2", mean)])
def test_a_tower_is_read_beside_its_text_tower(kind, pick, tmp_path, wide):
    """As the library saves both: AltCLIP's blocks under ``encoder.layer``, AIMv2's with a head."""
    entries = {"vision_config": TOWER, "text_config": TEXT, "projection_dim": 8}
    model = build(f"{kind}Model", f"{kind}Config", **entries)
    saved, own = save(model, tmp_path / "saved"), tmp_path / "own.safetensors"
    images = images_for(convert(saved, to="parity", out=own, num_classes=0).config)
    expected = outputs(model.vision_model, pick)(images)
    for name, logits in twin_logits(own, images).items():
        assert error(logits, expected) <= 1e-12, name


def test_what_no_schema_says_is_refused(tmp_path):
    model = build("InternVLVisionModel", "InternVLVisionConfig", **TOWER, use_qk_norm=True)
    with pytest.raises((ConfigError, ValueError), match=r"use_qk_norm|unknown to hf-internvl-vision"):
        read_checkpoint(save(model, tmp_path / "saved"))


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        ("MLCDVisionModel", "MLCDVisionConfig", "is of MLCD, .* class token by angles"),
        ("VitPoseBackbone", "VitPoseBackboneConfig", "is of ViTPose, .* a border of two pixels"),
    ],
)
def test_towers_that_no_schema_expresses_are_refused_by_name(kind, config, why, tmp_path):
    more = MLP if "MLCD" in kind else {"image_size": (15, 15), "patch_size": (5, 5)}
    with pytest.raises(OtherModelError, match=why):
        read_checkpoint(save(build(kind, config, **{**SQUARE, **more}), tmp_path / "saved"))


def test_a_name_that_no_schema_has_is_shown_beside_those_that_are_known(tmp_path):
    saved = save(build("InternVLVisionModel", "InternVLVisionConfig", **TOWER), tmp_path / "saved")
    entries = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**entries, "norm_type": "batch_norm"}))
    with pytest.raises(ConfigError, match="norm_type = 'batch_norm' is none of layer_norm, rms_norm"):
        read_checkpoint(saved)


@pytest.mark.parametrize(
    ("name", "entries", "said"),
    [
        ("Sapiens2", {"num_key_value_heads_per_layer": "636"}, r"= '636'; expected a whole number"),
        ("Sapiens2", {"num_key_value_heads_per_layer": [6, 3.7, 6]}, r"3\.7, 6\]; expected a whole"),
        ("Sapiens2", {"num_key_value_heads_per_layer": None, "num_hidden_layers": 10**12},
         "num_hidden_layers = 1000000000000; at most 4096"),
        ("TIPSv2", {"mlp_ratio": "4"}, "mlp_ratio = '4', which is no number"),
    ],
)  # fmt: skip
def test_entries_that_are_no_numbers_are_refused(name, entries, said, tmp_path):
    kind, config, more, *_ = TOWERS[name]
    saved = save(build(kind, config, **{**TOWER, **more}), tmp_path / "saved")
    original = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**original, **entries}))
    with pytest.raises(ConfigError, match=said):
        read_checkpoint(saved)


def test_the_head_of_aimv2_is_left_out_and_said(tmp_path):
    model = build("Aimv2VisionModel", "Aimv2VisionConfig", **TOWER)
    source = read_checkpoint(save(model, tmp_path / "saved"))
    assert any("head.cls_token" in note for note in source.notes)
    assert any("pools nothing" in note for note in source.notes)
