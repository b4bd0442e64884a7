"""Initial values: both twins draw from the distributions of the recipe, tensor by tensor."""

import math

import numpy as np
import pytest
from flax import nnx
from tiny import TINY

import vit_jax
import vit_torch
from vit_config import PRESETS
from vit_config.init import Draw, initial_draws
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

WIDE = TINY.replace(hidden_size=120, mlp_dim=150, depth=2, layer_scale=0.3, register_tokens=2)
RECIPES = ["timm", "torch", "torch_mha", "torch_uniform_tokens", "xavier_normal"]


def _draws(cfg):
    parts = leaves(abstract_model(cfg))
    kinds = {leaf.name: leaf.kind for leaf in parts}
    return initial_draws(cfg, kinds, {leaf.name: leaf.shape for leaf in parts})


def _mean_and_deviation(draw: Draw):
    if draw.kind == "constant":
        return draw.a, 0.0
    if draw.kind == "uniform":
        return (draw.a + draw.b) / 2, (draw.b - draw.a) / math.sqrt(12)
    return draw.a, draw.b  # truncation at +-2 does not touch a deviation of 0.02


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["fused", "per_head"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_moments_match_the_recipe_in_both_twins(recipe, attention):
    import torch

    torch.manual_seed(0)
    cfg = WIDE.replace(init=recipe, attention=attention)
    ours = vit_jax.to_arrays(vit_jax.ViT(cfg, rngs=nnx.Rngs(0)))
    theirs = vit_torch.to_arrays(vit_torch.ViT(cfg))
    for name, draw in _draws(cfg).items():
        mean, deviation = _mean_and_deviation(draw)
        for values in (ours[name], theirs[name]):
            if deviation == 0.0:
                assert np.all(values == np.float32(mean)), name
                continue
            n = values.size
            # five standard errors: of the mean, and of the deviation (a normal's is the widest)
            assert abs(values.mean() - mean) < 5 * deviation / math.sqrt(n), name
            assert abs(values.std() - deviation) < 5 * deviation / math.sqrt(2 * n), name
            if draw.kind == "uniform":
                assert values.min() >= np.float32(draw.a), name
                assert values.max() <= np.float32(draw.b), name


def test_presets_name_the_recipe_of_their_source():
    draws = _draws(PRESETS["mnist_exercise"])
    assert draws["cls_token"] == Draw("uniform", 0.0, 1.0)
    assert draws["blocks.0.attn.qkv_weight"] == Draw("uniform", -0.5, 0.5)  # 1 / sqrt(4)
    draws = _draws(PRESETS["vit_paper"])
    assert draws["pos_embed"] == Draw("normal", 0.0, 1.0)
    assert draws["blocks.3.attn.qkv.bias"] == Draw("constant", 0.0)
    # Xavier over the packed matrix, 768 in and 2304 out, as torch.nn.MultiheadAttention draws it
    assert draws["blocks.3.attn.qkv.weight"].b == pytest.approx(math.sqrt(6 / (768 + 2304)))
    draws = _draws(PRESETS["vit_from_scratch_large"])
    assert draws["cls_token"].b == pytest.approx(0.03125)
    assert draws["pos_embed"].b == pytest.approx(0.00314, rel=1e-2)
    assert draws["blocks.0.mlp.fc1.bias"] == Draw("uniform", -1 / 32, 1 / 32)


def test_torch_recipe_is_what_torch_layers_do():
    import torch

    torch.manual_seed(0)
    layers = {
        "patch_embed.proj": torch.nn.Conv2d(3, 120, (7, 5)),
        "blocks.0.mlp.fc2": torch.nn.Linear(150, 120),
    }
    draws = _draws(WIDE.replace(init="torch"))
    for name, layer in layers.items():
        for leaf, value in layer.named_parameters():
            bound = draws[f"{name}.{leaf}"].b
            assert value.abs().max() <= bound
            assert value.abs().max() > 0.9 * bound


def test_seeds_decide_everything():
    first, again, other = (
        vit_jax.to_arrays(vit_jax.ViT(TINY, rngs=nnx.Rngs(seed))) for seed in (1, 1, 2)
    )
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], other["blocks.0.mlp.fc1.weight"])
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], first["blocks.1.mlp.fc1.weight"])
