"""transformers' DINOv2 and DINOv3 against the library itself."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from parity.porting.models.files import save as save_own
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, redraw, twin_logits
from tests.support.hf_models import CLASSES, MLP, SIZES, SQUARE, build, logits, reload, save, save_memory
from tests.support.share import rarely
from tests.support.tiny import TINY, error
from vit_config import ConfigError
from vit_torch.model import ViT

DINOV2 = {
    "hf-dinov2": ("Dinov2ForImageClassification", "Dinov2Config", CLASSES),
    "hf-dinov2 body": ("Dinov2Model", "Dinov2Config", {}),
    "hf-dinov2 gated": ("Dinov2Model", "Dinov2Config", {"use_swiglu_ffn": True, "mlp_ratio": 3}),
    "hf-dinov2 no mask token": ("Dinov2Model", "Dinov2Config", {"use_mask_token": False}),
    "hf-dinov2-registers": (
        "Dinov2WithRegistersForImageClassification",
        "Dinov2WithRegistersConfig",
        {**CLASSES, "use_swiglu_ffn": True, "num_register_tokens": 2},
    ),
    "hf-dinov2-registers body": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {}),
}
DINOV3 = {
    "plain": {"num_register_tokens": 2},
    "gated, no registers": {"use_gated_mlp": True, "hidden_act": "silu"},
    "no biases": {"query_bias": False, "value_bias": False, "proj_bias": False, "mlp_bias": False},
    "every bias": {"key_bias": True, "rope_theta": 50.0, "num_register_tokens": 1},
}


@pytest.mark.parametrize("case", DINOV2)
def test_dinov2(case: str, tmp_path: Path) -> None:
    name, config, entries = DINOV2[case]
    model = build(name, config, **SQUARE, **entries)
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to=case.split()[0], out=tmp_path / "back", reload=reload())


@pytest.mark.parametrize("case", rarely(DINOV2, ("hf-dinov2", "hf-dinov2-registers")))
def test_dinov2_in_memory(case: str, tmp_path: Path) -> None:
    name, config, entries = DINOV2[case]
    model = build(name, config, **SQUARE, **entries)
    convert(save_memory(model, tmp_path / "saved"), to="parity", out=tmp_path / "own.safetensors")
    _same(model, tmp_path / "own.safetensors")


@pytest.mark.parametrize("name", ["Dinov2", "Dinov2WithRegisters"])
def test_dinov2_on_other_images(name: str, tmp_path: Path) -> None:
    """It fits its table, in float32, to whatever comes; so do the twins, in their own type."""
    model = build(f"{name}Model", f"{name}Config", **SQUARE)
    saved = save(model, tmp_path / "saved")
    convert(saved, to="parity", out=tmp_path / "own.safetensors")
    images = np.random.default_rng(2).standard_normal((2, 3, 20, 30))
    expected = logits(model)(images)
    for actual in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(actual, expected) <= 1e-6


def test_the_scale_of_branches_that_no_entry_says_is_the_librarys(tmp_path: Path) -> None:
    saved = save(build("Dinov2Model", "Dinov2Config", **SQUARE), tmp_path / "saved")
    content = json.loads((saved / "config.json").read_text())
    del content["layerscale_value"]
    (saved / "config.json").write_text(json.dumps(content))
    assert read_checkpoint(saved).config.layer_scale == 1.0


@pytest.fixture
def float64_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    """DINOv3 computes its angles in float32 whatever its type; here in float64."""
    from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding as Rope

    original = Rope.forward

    def forward(self, pixel_values: torch.Tensor):
        with mock.patch.object(torch, "float32", torch.float64):
            bands = torch.arange(0, 1, 4 / self.head_dim, dtype=torch.float64)
            self.inv_freq = 1 / self.base**bands
            return original(self, pixel_values)

    monkeypatch.setattr(Rope, "forward", forward)


@pytest.mark.usefixtures("float64_rope")
@pytest.mark.parametrize("case", DINOV3)
def test_dinov3(case: str, tmp_path: Path) -> None:
    entries = {**SIZES, **MLP, "hidden_size": 24, "num_attention_heads": 3, **DINOV3[case]}
    model = build("DINOv3ViTModel", "DINOv3ViTConfig", **entries)
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to="hf-dinov3", out=tmp_path / "back", reload=reload())
    convert(save_memory(model, tmp_path / "memory"), to="parity", out=tmp_path / "memory.safetensors")
    _same(model, tmp_path / "memory.safetensors")


def test_dinov3_in_its_own_float32(tmp_path: Path) -> None:
    """The rounding of its angles is all that is between it and the twins."""
    entries = {**SIZES, **MLP, "hidden_size": 24, "num_attention_heads": 3}
    model = build("DINOv3ViTModel", "DINOv3ViTConfig", **entries)
    convert(save(model, tmp_path / "saved"), to="parity", out=tmp_path / "own.safetensors")
    _same(model, tmp_path / "own.safetensors", tolerance=1e-6)


def test_dinov3_refuses_biases_of_one_kind(tmp_path: Path) -> None:
    entries = {**SIZES, **MLP, "hidden_size": 24, "num_attention_heads": 3, "query_bias": False}
    saved = save(build("DINOv3ViTModel", "DINOv3ViTConfig", **entries), tmp_path / "saved")
    with pytest.raises(ConfigError, match="query_bias = False, key_bias = False, value_bias = True"):
        read_checkpoint(saved)


def test_dinov2_refuses_images_that_its_code_fits_wrongly(tmp_path: Path) -> None:
    saved = save(build("Dinov2Model", "Dinov2Config", **SIZES), tmp_path / "saved")
    with pytest.raises(
        ConfigError, match=r"image_size = .21, 10., and its positions are right for squares"
    ):
        read_checkpoint(saved)


def test_dinov2_says_what_it_cannot_hold(tmp_path: Path) -> None:
    saved = save(build("Dinov2Model", "Dinov2Config", **SQUARE), tmp_path / "saved")
    source = read_checkpoint(saved)
    with pytest.raises(ConfigError, match="no mlp_ratio makes mlp_dim = 44 of hidden_size = 30"):
        convert(_own(tmp_path, layer_scale=0.1), to="hf-dinov2", out=tmp_path / "back")
    with pytest.raises(ConfigError, match=r"hf-vit cannot hold this model: .*layer_scale = 1.0"):
        convert(source, to="hf-vit", out=tmp_path / "back")


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_a_head_on_one_half_is_one_on_both(pool: str, tmp_path: Path) -> None:
    own = _own(tmp_path, mlp_dim=60, pool=pool)
    source = read_checkpoint(own)
    written = convert(source, to="hf-dinov2", out=tmp_path / "hf")
    assert written.config.pool == "class_mean"
    images = images_for(source.config)
    expected = twin_logits(own, images)["torch"]
    assert error(reload()(tmp_path / "hf")(images), expected) <= 1e-12
    if pool == "class":
        assert convert(tmp_path / "hf", to="hf-vit", out=tmp_path / "back").config.pool == "class"


def _own(folder: Path, **changes: Any) -> Path:
    square = {"image_size": (15, 15), "patch_size": (5, 5), "pos_embed_resize": "bicubic", **changes}
    path = folder / "own.safetensors"
    save_own(path, redraw(ViT(TINY.replace(**square))))
    return path


def _same(model: torch.nn.Module, own: Path, tolerance: float = 1e-12) -> None:
    images = images_for(read_checkpoint(own).config)
    for actual in twin_logits(own, images).values():
        assert error(actual, logits(model)(images)) <= tolerance


@pytest.mark.parametrize(
    ("name", "entries"), [("Dinov2", {}), ("DINOv3ViT", {"hidden_size": 40, "num_register_tokens": 2})]
)
def test_the_mask_token_is_carried_where_both_have_one(name, entries, tmp_path: Path) -> None:
    """Training goes on from it, though the encoder does not use it."""
    model: Any = build(f"{name}Model", f"{name}Config", **{**SQUARE, **entries})
    redraw(model)
    mask = model.embeddings.mask_token.detach().flatten()
    saved, native = save(model, tmp_path / "saved"), tmp_path / "native.pth"
    done = convert(saved, to="dinov2" if name == "Dinov2" else "dinov3", out=native)
    assert not any("zeros" in note or "left out" in note for note in done.notes)
    state = torch.load(native)
    assert torch.equal(state.get("model", state)["mask_token"].flatten(), mask)
    for source in (saved, native):
        convert(source, to="hf", out=tmp_path / "back", force=True)
        again = read_checkpoint(tmp_path / "back")
        assert np.array_equal(again.place.tensors["embeddings.mask_token"].load().ravel(), mask)
    convert(native, to="parity", out=tmp_path / "own.safetensors")
    done = convert(tmp_path / "own.safetensors", to="hf", out=tmp_path / "without")
    assert (
        "embeddings.mask_token: zeros, as the source has none; the encoder does not use it" in done.notes
    )
