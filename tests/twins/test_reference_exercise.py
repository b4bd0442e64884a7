"""The preset mnist_exercise: per-head attention, fixed positions, softmax inside the model."""

import math

import jax
import numpy as np
import pytest
import torch
from torch import nn

import vit_jax.loss
import vit_jax.patch
import vit_jax.weights
import vit_torch
import vit_torch.loss
import vit_torch.patch
import vit_torch.weights
from tests.support.originals import Exercise, patchify, position_table
from tests.support.peers import EXACT, call_jax, nchw, random_images, redrawn, run_both
from tests.support.tiny import error
from vit_config import preset
from vit_config.init import Draw, initial_draws
from vit_config.numerics.tables import fixed_position_table, sincos1d
from vit_jax.leaves import count_parameters

PRESET = preset("mnist_exercise")
UNEVEN = PRESET.replace(  # the same switches where no two sizes agree
    image_size=(21, 15), patch_size=(7, 5), in_channels=3, hidden_size=30, num_heads=5, mlp_dim=44,
    num_classes=11,
)  # fmt: skip


@torch.no_grad()
def exercise(cfg, arrays: dict, images: np.ndarray) -> torch.Tensor:
    """The whole exercise: probabilities (B, classes)."""
    return Exercise(cfg).load(arrays)(nchw(images))


def test_it_has_1642_parameters():
    assert count_parameters(vit_jax.weights.abstract_model(PRESET)) == 1642
    assert vit_torch.count_parameters(vit_torch.weights.abstract_model(PRESET)) == 1642


def test_it_has_no_output_projection_and_no_final_norm():
    names = set(redrawn(PRESET))
    layers = ("norm1", "norm2", "mlp.fc1", "mlp.fc2")
    block = [f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")]
    block += ["attn.qkv_weight", "attn.qkv_bias"]
    assert names == {
        "cls_token", "patch_embed.proj.weight", "patch_embed.proj.bias", "head.weight", "head.bias",
        *(f"blocks.{i}.{name}" for i in range(2) for name in block),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "per_side", "expected"),
    [
        ((2, 1, 28, 28), 2, (2, 4, 196)),
        ((2, 1, 28, 28), 7, (2, 49, 16)),
        ((16, 3, 56, 56), 7, (16, 49, 192)),
    ],
)
def test_patchify_gives_the_shapes_of_the_exercise(shape, per_side, expected):
    images = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    patch = (shape[2] // per_side, shape[3] // per_side)
    ours = vit_torch.patch.patchify(torch.tensor(images), patch, order="chw")
    twin = vit_jax.patch.patchify(jax.numpy.asarray(images.transpose(0, 2, 3, 1)), patch, order="chw")
    assert tuple(ours.shape) == tuple(twin.shape) == expected
    np.testing.assert_array_equal(ours.numpy(), twin)


def test_patches_are_flattened_channel_first_and_come_row_by_row():
    images = np.random.default_rng(1).standard_normal((2, 3, 21, 15)).astype(np.float32)
    slices = patchify(torch.tensor(images), (7, 5)).numpy()
    ours = vit_torch.patch.patchify(torch.tensor(images), (7, 5), order="chw")
    twin = vit_jax.patch.patchify(jax.numpy.asarray(images.transpose(0, 2, 3, 1)), (7, 5), order="chw")
    np.testing.assert_array_equal(ours.numpy(), slices)
    np.testing.assert_array_equal(twin, slices)


@pytest.mark.parametrize(("rows", "width"), [(49, 128), (50, 8), (7, 30)])
def test_the_position_table_is_the_formula_row_by_row(rows, width):
    expected, table = position_table(rows, width).numpy(), sincos1d(rows, width)
    assert table.shape == (rows, width)
    for i in range(rows):
        np.testing.assert_allclose(table[i], expected[i], rtol=0, atol=1e-14)


@pytest.mark.parametrize("cfg", [PRESET, UNEVEN], ids=["preset", "uneven"])
def test_the_class_token_stands_at_index_0_of_the_table(cfg):
    arrays = redrawn(cfg)
    table = fixed_position_table(cfg, cfg.grid)
    assert table.shape == (1 + cfg.num_patches, cfg.hidden_size)
    np.testing.assert_array_equal(table[0], np.tile([0.0, 1.0], cfg.hidden_size // 2))
    expected = arrays["cls_token"][0, 0] + table[0]
    embedded = {
        "jax": call_jax(cfg, arrays, lambda model, x: model.embed(x)[0], random_images(cfg)),
        "torch": vit_torch.from_arrays(cfg, arrays)
        .embed(torch.tensor(random_images(cfg)).permute(0, 3, 1, 2))[0]
        .detach()
        .numpy(),
    }
    for tokens in embedded.values():
        assert error(tokens[0, 0], expected) <= EXACT
        assert error(tokens[1, 0], expected) <= EXACT


@pytest.mark.parametrize("cfg", [PRESET, UNEVEN], ids=["preset", "uneven"])
def test_attention_is_one_small_attention_per_head(cfg):
    arrays = redrawn(cfg)
    x = np.random.default_rng(2).standard_normal((2, 7, cfg.hidden_size))
    expected = Exercise(cfg).load(arrays).blocks[1].attention(torch.tensor(x))
    ours, _ = vit_torch.from_arrays(cfg, arrays).get_submodule("blocks.1.attn")(torch.tensor(x))
    twin, _ = call_jax(cfg, arrays, lambda model, x: model.blocks[1].attn(x), x)
    assert error(ours.detach(), expected.detach()) <= EXACT
    assert error(twin, expected.detach()) <= EXACT


def test_a_head_sees_only_its_own_slice():
    arrays = redrawn(UNEVEN)
    attention = vit_torch.from_arrays(UNEVEN, arrays).get_submodule("blocks.0.attn")
    x = torch.randn(1, 4, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    other = x.clone()
    other[..., 6:12] += 1.0  # the second head's slice
    with torch.no_grad():
        changed = ((attention(x)[0] - attention(other)[0]).abs() > 1e-9).any(dim=1)[0]
    assert changed.tolist() == [6 <= i < 12 for i in range(30)]


@pytest.mark.parametrize(
    "cfg",
    [
        PRESET,
        UNEVEN,
        PRESET.replace(num_heads=4, patch_size=(14, 7)),
    ],
    ids=["preset", "uneven", "four heads and eight patches"],
)
def test_the_whole_forward_is_the_exercise(cfg):
    arrays, images = redrawn(cfg), random_images(cfg)
    expected = exercise(cfg, arrays, images)
    for twin, output in run_both(cfg, arrays, images).items():
        assert error(output.logits, expected) <= EXACT, twin


def test_the_loss_is_applied_to_the_probabilities():
    arrays, images = redrawn(PRESET), random_images(PRESET, 5)
    labels = np.array([3, 1, 4, 1, 5])
    probabilities = exercise(PRESET, arrays, images)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-15)
    expected = nn.CrossEntropyLoss(reduction="none")(probabilities, torch.tensor(labels))
    outputs = run_both(PRESET, arrays, images)
    ours = vit_torch.loss.cross_entropy(torch.tensor(outputs["torch"].logits), torch.tensor(labels))
    with jax.enable_x64(True):
        twin = vit_jax.loss.cross_entropy(
            jax.numpy.asarray(outputs["jax"].logits), jax.numpy.asarray(labels)
        )
        assert error(twin, expected) <= EXACT
    assert error(ours, expected) <= EXACT


def test_initial_values_are_torchs_and_the_class_token_is_uniform():
    parts = vit_torch.leaves.leaves(vit_torch.weights.abstract_model(PRESET))
    draws = initial_draws(
        PRESET, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    assert draws["cls_token"] == (Draw("uniform", 0.0, 1.0),)
    for name, fan_in in {
        "patch_embed.proj.weight": 16,
        "patch_embed.proj.bias": 16,
        "blocks.0.attn.qkv_weight": 4,
        "blocks.0.attn.qkv_bias": 4,
        "blocks.1.mlp.fc1.weight": 8,
        "blocks.1.mlp.fc2.bias": 32,
        "head.weight": 8,
    }.items():
        bound = 1 / math.sqrt(fan_in)  # nn.Linear's
        assert draws[name] == (Draw("uniform", pytest.approx(-bound), pytest.approx(bound)),), name


@pytest.mark.parametrize("positions", ["learned", "sincos2d"])
def test_another_position_encoding_is_one_field(positions):
    prefix = "all" if positions == "learned" else "none"
    cfg = PRESET.replace(pos_embed=positions, pos_embed_prefix=prefix)
    arrays, images = redrawn(cfg), random_images(cfg)
    outputs = run_both(cfg, arrays, images)
    assert error(outputs["jax"].logits, outputs["torch"].logits) <= EXACT
    assert error(outputs["jax"].logits, exercise(PRESET, redrawn(PRESET), images)) > 1e-6
