"""Initial values: the recipes are those of timm and of torch, and both twins draw by them."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax
import vit_jax.init
import vit_torch
import vit_torch.init
from parity.porting.dialects.records.timm import read_state
from tests.support.init_cases import (
    SCHEMAS,
    SEEDS,
    SHARED,
    TIMM,
    WIDE,
    Layers,
)
from tests.support.init_statistics import (
    describe,
    draws_of,
    misfit,
    misfits,
    rotary_misfit,
)
from vit_config import PRESETS
from vit_config.init import ZERO, Draw
from vit_config.parameters import parameters
from vit_torch.weights import abstract_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", TIMM)
def test_the_recipe_is_timms(case):
    kind, theirs, _ = TIMM[case]
    cfg, models = SCHEMAS[case], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        state = kind(**{**SHARED, **theirs}).state_dict()
        models.append({name: x.numpy() for name, x in read_state(state, join=torch.cat).items()})
    assert misfits(cfg, models) == {}


@pytest.mark.parametrize("case", SCHEMAS)
def test_torch_draws_by_the_recipe(case):
    models = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        models.append(vit_torch.to_arrays(vit_torch.ViT(SCHEMAS[case])))
    assert misfits(SCHEMAS[case], models) == {}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.exhaustive] * (number % 6 > 0))
        for number, case in enumerate(SCHEMAS)
    ],
)
def test_jax_draws_by_the_recipe(case):
    cfg = SCHEMAS[case]
    arrays = vit_jax.to_arrays(vit_jax.ViT(cfg, rngs=nnx.Rngs(0)))
    shapes = {name: each.shape for name, each in parameters(cfg).items()}
    assert {name: each.shape for name, each in arrays.items()} == shapes
    assert misfits(cfg, [arrays]) == {}


def test_the_tanh_layer_before_the_head_is_a_layer_like_others():
    """Except that Google's ViT draws it LeCun-normal, in JAX."""
    for recipe in ("timm", "eva", "torch", "xavier_normal"):
        draws = draws_of(WIDE.replace(init=recipe, head_hidden=WIDE.mlp_dim))
        assert draws["pre_logits.weight"] == draws["blocks.0.mlp.fc1.weight"]
        assert draws["pre_logits.bias"] == draws["blocks.0.mlp.fc1.bias"]
    draws = draws_of(WIDE.replace(init="jax", head_hidden=70))
    _, spread, _, low, high = describe(draws["pre_logits.weight"][0])
    assert spread == pytest.approx(96**-0.5)
    assert high == -low < 2.3 * spread
    assert draws["pre_logits.bias"] == draws["head.weight"] == draws["head.bias"] == ZERO


def test_every_recipe_is_tested():
    recipes = type(WIDE).model_fields["init"].annotation.__args__
    assert {cfg.init for cfg in SCHEMAS.values()} == set(recipes)


SPREAD = 0.02 * math.sqrt(1 - 2 * 2 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (Draw("truncated_normal", 0.0, 0.02, bound=0.04), Draw("normal", 0.0, 0.02)),
        (Draw("normal", 0.0, 0.02), Draw("truncated_normal", 0.0, 0.02, bound=0.04)),
        (Draw("normal", 0.0, SPREAD), Draw("truncated_normal", 0.0, 0.02, bound=0.04)),
        (Draw("truncated_normal", 0.0, 0.02, bound=0.04), Draw("normal", 0.0, SPREAD)),
        (Draw("uniform", -1.0, 1.0), Draw("normal", 0.0, 3**-0.5)),
        (Draw("uniform", -1.0, 1.0), Draw("uniform", -1.05, 1.05)),
        (Draw("uniform", -1.05, 1.05), Draw("uniform", -1.0, 1.0)),
        (Draw("uniform", 0.0, 1.0), Draw("uniform", -1.0, 1.0)),
        (Draw("normal", 0.0, 1e-6), Draw("constant", 0.0)),
        (Draw("constant", 0.0), Draw("normal", 0.0, 1e-6)),
        (Draw("normal", 0.002, 0.02), Draw("normal", 0.0, 0.02)),
    ],
)
def test_a_wrong_distribution_is_noticed(drawn, expected):
    torch.manual_seed(0)
    values = vit_torch.init.sample(drawn, torch.empty(96, 288)).numpy()
    assert misfit(values, drawn) == ""
    assert misfit(values, expected) != ""


def test_truncation_as_jax_means_it_is_narrower():
    _, spread, kurtosis, _, _ = describe(Draw("truncated_normal", 0.0, 0.02, bound=0.04))
    assert spread == pytest.approx(SPREAD) == pytest.approx(0.0176, abs=1e-5)
    assert kurtosis == pytest.approx(2.366, abs=1e-3)


def test_no_weight_is_an_outlier():
    """A normal of 0.02 that is cut at +-2 by an inverse error function is -2 for one value in 2^23."""
    (draw,) = draws_of(WIDE)["blocks.0.mlp.fc1.weight"]
    assert (draw,) == draws_of(WIDE.replace(init="eva"))["blocks.0.mlp.fc1.weight"]
    # the key draws the lowest of all uniform values
    ours = vit_jax.init.sample(draw, jax.random.key(4), (1024, 1024), jnp.float32)
    torch.manual_seed(4)
    theirs = vit_torch.init.sample(draw, torch.empty(1024, 1024))
    assert 0.1 < float(jnp.abs(ours).max()) < 0.12
    assert 0.08 < float(theirs.abs().max()) < 0.12


def test_small_parameters_are_timms():
    """Many of those that a model has too few values of."""
    torch.manual_seed(0)
    (latent,) = draws_of(SCHEMAS["eva, swiglu, res_post, map pool"])["attn_pool.latent"]
    values = [Layers.AttentionPoolLatent(96, num_heads=4).latent.detach() for _ in range(99)]
    assert misfit(torch.stack(values), latent) == ""
    assert misfit(torch.stack(values), Draw("normal", 0.0, latent.b)) != ""
    lambdas = [Layers.DiffAttention(96, num_heads=4) for _ in range(99)]
    for name, (draw,) in draws_of(SCHEMAS["differential"]).items():
        if "lambda" in name:
            values = [getattr(layer, name.split(".")[-1]).detach() for layer in lambdas]
            assert misfit(torch.stack(values), draw) == "", name


def test_the_last_projection_of_each_branch_starts_smaller():
    branches = {"blocks.1.attns.1.attn.proj.weight", "blocks.1.ffns.0.mlp.fc2.weight"}
    one_branch = {"blocks.1.attn_out_proj.weight", "blocks.1.mlp_out_proj.weight"}
    joint = {"blocks.1.out_proj.weight"}
    for names, fields in (
        (branches, {"num_parallel": 2}),
        (one_branch, {"block": "parallel"}),
        (joint, {"block": "parallel", "attention": "differential"}),
    ):
        draws = draws_of(WIDE.replace(init="eva", **fields))
        smaller = {name for name, (draw,) in draws.items() if draw.b == pytest.approx(0.02 / 2)}
        assert names <= smaller
        assert all(name.startswith("blocks.1.") for name in smaller)


def test_rotary_frequencies_start_as_timms():
    shape = (2, 40, 50, 12)  # 40 blocks, 50 heads of width 24
    torch.manual_seed(0)
    freqs = Layers.pos_embed_sincos.init_random_2d_freqs(24, 40, 50, temperature=7.0)
    draw = Draw("rotary", 7.0)
    ours = vit_jax.init.sample(draw, jax.random.key(0), shape, jnp.float32)
    theirs = vit_torch.init.sample(draw, torch.empty(shape))
    for values in (freqs, ours, theirs):
        assert values.shape == shape
        assert rotary_misfit(np.asarray(values), 7.0) == ""
    assert rotary_misfit(freqs.numpy(), 8.0) != ""
    assert rotary_misfit(freqs.numpy()[::-1], 7.0) != ""
    assert rotary_misfit(freqs.numpy()[:, :, :10].clip(0) + 1e-3, 7.0) != ""
    unturned = Layers.pos_embed_sincos.init_random_2d_freqs(24, 40, 50, temperature=7.0, rotate=False)
    assert rotary_misfit(unturned.numpy(), 7.0) == "angles are not uniform"


def test_presets_name_the_recipe_of_their_source():
    draws = draws_of(PRESETS["mnist_exercise"])
    assert draws["cls_token"] == (Draw("uniform", 0.0, 1.0),)
    assert draws["blocks.0.attn.qkv_weight"] == (Draw("uniform", -0.5, 0.5),)  # 1 / sqrt(4)
    draws = draws_of(PRESETS["vit_paper"])
    assert draws["pos_embed"] == (Draw("normal", 0.0, 1.0),)
    assert draws["blocks.3.attn.qkv.bias"] == (Draw("constant", 0.0),)
    # Xavier over the packed matrix, 768 in and 2304 out, as torch.nn.MultiheadAttention draws it
    assert draws["blocks.3.attn.qkv.weight"][0].b == pytest.approx(math.sqrt(6 / (768 + 2304)))
    draws = draws_of(PRESETS["vit_from_scratch_large"])
    assert draws["cls_token"][0].b == pytest.approx(0.03125)
    assert draws["pos_embed"][0].b == pytest.approx(0.00314, rel=1e-2)
    assert draws["blocks.0.mlp.fc1.bias"] == (Draw("uniform", -1 / 32, 1 / 32),)


def _layers(attention):
    """Fresh layers of torch's by the name of ours."""
    values = {}
    for name, make in {
        "patch_embed.proj": partial(torch.nn.Conv2d, 3, 96, (7, 5)),
        "blocks.0.mlp.fc2": partial(torch.nn.Linear, 144, 96),
        "head": partial(torch.nn.Linear, 96, 70),
    }.items():
        values |= {f"{name}.{leaf}": value for leaf, value in make().named_parameters()}
    if attention:
        module = torch.nn.MultiheadAttention(96, 4)
        values |= {
            "blocks.0.attn.qkv.weight": module.in_proj_weight,
            "blocks.0.attn.qkv.bias": module.in_proj_bias,
            "blocks.0.attn.proj.weight": module.out_proj.weight,
            "blocks.0.attn.proj.bias": module.out_proj.bias,
        }
    return values


@pytest.mark.parametrize("recipe", ["torch", "torch_mha"])
def test_torch_recipes_are_what_torch_layers_do(recipe):
    draws = draws_of(WIDE.replace(init=recipe))
    torch.manual_seed(0)
    drawn = [_layers(attention=recipe == "torch_mha") for _ in SEEDS]
    for name in drawn[0]:
        (draw,) = draws[name]
        values = np.concatenate([layers[name].detach().numpy() for layers in drawn])
        assert misfit(values, draw) == "", name


def test_xavier_normal_is_torchs():
    torch.manual_seed(0)
    for name, shares in draws_of(WIDE.replace(init="xavier_normal")).items():
        shape = abstract_model(WIDE).get_parameter(name).shape
        if len(shape) > 1:
            values = [torch.nn.init.xavier_normal_(torch.empty(shape)).numpy() for _ in SEEDS]
            assert misfit(np.concatenate(values), shares[0]) == "", name


def test_seeds_decide_everything():
    first, again, other = (
        vit_jax.to_arrays(vit_jax.ViT(WIDE, rngs=nnx.Rngs(seed))) for seed in (1, 1, 2)
    )
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], other["blocks.0.mlp.fc1.weight"])
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], first["blocks.1.mlp.fc1.weight"])
