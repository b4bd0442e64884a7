"""transformers' image tower of Gemma 4: both twins, timm's encoder, and back, bounds included."""

import jax
import numpy as np
import pytest
import torch

from evidence.timm_sweep import peer
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import assert_same_tensors
from tests.support.hf_models import build, save
from tests.support.tiny import error
from vit_config import WeightsError
from vit_config.images.patches import Patches, collate

TOWER = {
    "hidden_size": 30, "intermediate_size": 44, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "patch_size": 5, "pooling_kernel_size": 2,
    "position_embedding_size": 11, "use_clipped_linears": True, "standardize": True,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 50.0},
}  # fmt: skip
GRIDS = ((4, 6), (2, 8), (4, 4))
SIZE = {"image_size": (20, 30)}


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    with peer.float64():  # its angles
        model = build("Gemma4VisionModel", "Gemma4VisionConfig", **TOWER)
    return model, save(model, tmp_path_factory.mktemp("gemma4") / "saved")


def batch_of():
    stream = np.random.default_rng(0)
    images = [stream.standard_normal((rows * 5, columns * 5, 3)) for rows, columns in GRIDS]
    return collate(images, (5, 5), 28)


def of_transformers(model, batch):
    """The pooled tokens of all images, one after another, in float64 throughout."""
    places = torch.from_numpy(batch.coordinates).flip(2).long()  # columns first
    places[~torch.from_numpy(batch.valid)] = -1
    with peer.float64():
        return model(torch.from_numpy(batch.pixels), places).last_hidden_state


def pooled(logits):
    """Those of the twins, of squares that are no padding."""
    counts = [rows * columns // 4 for rows, columns in GRIDS]
    return np.concatenate([np.asarray(each)[:n] for each, n in zip(logits, counts, strict=True)])


def test_both_twins_and_back(gemma, tmp_path):
    model, saved = gemma
    source = read_checkpoint(saved, override=SIZE)
    assert source.dialect.name == "hf-gemma4-vision"
    assert read_checkpoint(saved).config.image_size == (160, 160)  # 16 squares of 2 patches of 5
    assert (source.config.num_kv_heads, source.config.attention_head_dim) == (2, 8)
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    batch, expected = batch_of(), of_transformers(model, batch_of()).detach()
    with torch.no_grad():
        twin = load(tmp_path / "own.safetensors", framework="torch").model
        assert error(pooled(twin.logits(Patches(*map(torch.from_numpy, batch)))), expected) <= 1e-12
    with jax.enable_x64(True):
        twin = load(tmp_path / "own.safetensors", framework="jax").model
        logits = jax.jit(twin.logits)(Patches(*map(jax.numpy.asarray, batch)))
        assert error(pooled(logits), expected) <= 1e-12
    convert(tmp_path / "own.safetensors", to="hf", out=tmp_path / "back")
    back = read_checkpoint(tmp_path / "back", override=SIZE)
    assert_same_tensors(back.tensors, source.tensors)
    assert any(np.isinf(each.load()).any() for each in back.tensors.values())


def test_timms_encoder_computes_the_same(gemma, tmp_path):
    """Its patches are laid out otherwise, by the code of both libraries."""
    model, saved = gemma
    done = convert(read_checkpoint(saved, override=SIZE), to="timm", out=tmp_path / "timm")
    assert done.dialect == "timm-gemma4-encoder"
    timm = peer.create_float64(f"local-dir:{tmp_path / 'timm'}")
    tensors = read_checkpoint(tmp_path / "timm").tensors
    state = {name: torch.from_numpy(each.load()) for name, each in tensors.items()}
    timm.load_state_dict(state, strict=True)
    batch = batch_of()
    given = {
        "patches": torch.from_numpy(batch.pixels),
        "patch_coord": torch.from_numpy(batch.coordinates).long(),
        "patch_valid": torch.from_numpy(batch.valid),
    }
    with torch.no_grad(), peer.float64():
        result = timm(given)
    assert error(pooled(result), of_transformers(model, batch).detach()) <= 1e-12


def test_a_bound_that_is_no_number_is_refused(gemma, tmp_path):
    _, saved = gemma
    source = read_checkpoint(saved, override=SIZE)
    source.arrays["blocks.0.mlp.fc2.bounds"].load()
    broken = dict(source.arrays)
    bounds = broken["blocks.0.mlp.fc2.bounds"]
    broken["blocks.0.mlp.fc2.bounds"] = type(bounds).of(np.full(bounds.shape, np.nan))
    source = source.__class__(**{**vars(source), "arrays": broken})
    with pytest.raises(WeightsError, match=r"fc2\.bounds: 4 of 4 values are not finite"):
        convert(source, to="parity", out=tmp_path / "own.safetensors")
