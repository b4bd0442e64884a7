"""The schema: strict, JSON both ways, no contradiction accepted, no field that does nothing."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TINY, VARIANTS, variant

import vit_jax
import vit_torch
from vit_config import PRESETS, ConfigError, InputError, Recipe, ViTConfig, preset
from vit_config.init import initial_draws

# one change to each field, away from BASE; with what else must change for the two to go together
BASE = TINY.replace(
    layer_scale=0.1,
    register_tokens=2,
    dropout_embed=0.1,
    dropout_attention=0.1,
    dropout_attention_out=0.1,
    dropout_mlp_inner=0.1,
    dropout_mlp_outer=0.1,
    stochastic_depth=0.1,
)
FLIPS = {
    "image_size": (28, 15),
    "patch_size": (3, 5),
    "in_channels": 1,
    "hidden_size": 40,
    "depth": 2,
    "num_heads": 3,
    "mlp_dim": 45,
    "num_classes": 12,
    "patch_embed": "linear_hwc",
    "patch_bias": False,
    "patch_input_norm": (True, {"patch_embed": "linear_hwc"}),
    "patch_norm": True,
    "class_token": (False, {"pool": "mean"}),
    "register_tokens": 1,
    "pos_embed": "sincos1d",
    "pos_embed_prefix": "none",
    "pos_embed_resize": "leading_rows",
    "pre_norm": True,
    "attention": "per_head",
    "qkv_bias": False,
    "attention_out_proj": (False, {"attention_out_bias": False}),
    "attention_out_bias": False,
    "act": "silu",
    "mlp_bias": False,
    "layer_scale": None,
    "norm": "rmsnorm",
    "norm_eps": 1e-2,
    "final_norm": "none",
    "pool": "mean",
    "head_activation": "softmax",
    "dropout_embed": 0.5,
    "dropout_attention": 0.5,
    "dropout_attention_out": 0.5,
    "dropout_mlp_inner": 0.5,
    "dropout_mlp_outer": 0.5,
    "stochastic_depth": 0.5,
    "init": "xavier_normal",
}


def test_every_field_has_a_flip():
    assert set(FLIPS) == set(ViTConfig.fields())


def _flip(field):
    """BASE with the companions of a flip, and that with the field flipped."""
    value = FLIPS[field]
    companions = {}
    if isinstance(value, tuple) and isinstance(value[1], dict):
        value, companions = value
    base = BASE.replace(**companions)
    assert getattr(base, field) != value
    return base, base.replace(**{field: value})


def _function(cfg, images):
    """Everything a schema decides: tree, initial distributions, output, output in training."""
    model = vit_jax.ViT(cfg, rngs=nnx.Rngs(0))
    leaves = vit_jax.leaves.leaves(model)
    tree = {leaf.name: leaf.shape for leaf in leaves}
    draws = initial_draws(cfg, {leaf.name: leaf.kind for leaf in leaves}, tree)
    logits = [model(images, rngs=rngs).logits for rngs in (None, nnx.Rngs(dropout=7))]
    return tree, draws, np.stack(logits)


@pytest.mark.slow
@pytest.mark.parametrize("field", FLIPS)
def test_no_field_is_dead(field):
    images = jnp.asarray(np.random.default_rng(0).standard_normal((3, *BASE.image_size, 3)), jnp.float32)
    base, flipped = _flip(field)
    if field == "pos_embed_resize":
        small = images[:, :14, :10]
        with pytest.raises(InputError):
            vit_jax.ViT(base, rngs=nnx.Rngs(0))(small)
        assert vit_jax.ViT(flipped, rngs=nnx.Rngs(0))(small).patch_tokens.shape == (3, 4, 30)
        return
    if field in ("image_size", "in_channels"):
        with pytest.raises(InputError, match=field):
            vit_jax.ViT(flipped, rngs=nnx.Rngs(0))(images)
        return
    tree, draws, logits = _function(base, images)
    new_tree, new_draws, new_logits = _function(flipped, images)
    same_output = logits.shape == new_logits.shape and np.array_equal(logits, new_logits)
    assert tree != new_tree or draws != new_draws or not same_output


def test_contradictions_name_both_fields_and_values():
    for changes, parts in [
        ({"image_size": (22, 15)}, ("image_size = (22, 15)", "patch_size = (7, 5)", "21x15", "28x15")),
        ({"num_heads": 7}, ("num_heads = 7", "hidden_size = 30")),
        ({"class_token": False}, ('pool = "class"', "class_token = false")),
        ({"patch_input_norm": True}, ("patch_input_norm = true", 'patch_embed = "conv"')),
        ({"attention_out_proj": False}, ("attention_out_bias = true", "attention_out_proj = false")),
        ({"num_classes": 0, "head_activation": "softmax"}, ("num_classes = 0", "softmax")),
        (
            {"pos_embed": "none", "pos_embed_prefix": "all"},
            ('pos_embed = "none"', 'pos_embed_prefix = "all"'),
        ),
        ({"pos_embed": "sincos2d"}, ('pos_embed = "sincos2d"', "hidden_size = 30")),
        ({"pos_embed": "none", "pos_embed_resize": "leading_rows"}, ("leading_rows", '"none"')),
        ({"pos_embed": "sincos1d", "hidden_size": 15}, ("sincos1d", "hidden_size = 15")),
        ({"pos_embed_prefix": "class"}, ('pos_embed_prefix = "class"', "register_tokens = 0")),
        ({"depth": 1, "stochastic_depth": 0.1}, ("stochastic_depth = 0.1", "depth = 1")),
    ]:
        with pytest.raises(ConfigError) as caught:
            TINY.replace(**changes)
        for part in parts:
            assert part in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_head": 3}, "did you mean 'num_heads'"),
        ({"depth": "3"}, "ViTConfig.depth = '3'"),
        ({"depth": True}, "ViTConfig.depth = True"),
        ({"depth": 3.0}, "ViTConfig.depth = 3.0"),
        ({"depth": 0}, "greater than 0"),
        ({"patch_size": [1, 2, 3]}, "ViTConfig.patch_size"),
        ({"dropout_embed": 1.0}, "ViTConfig.dropout_embed = 1.0"),
        ({"act": "gelu_fast"}, "ViTConfig.act = 'gelu_fast'"),
    ],
)
def test_unknown_and_mistyped_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        ViTConfig(**fields)


def test_frozen():
    with pytest.raises(Exception, match="frozen"):
        TINY.depth = 4


@pytest.mark.parametrize("cfg", [*PRESETS.values(), *(variant(name) for name in VARIANTS)])
def test_json_round_trip(cfg):
    assert ViTConfig.from_json(cfg.to_json()) == cfg


@settings(max_examples=40, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    patch=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    heads=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    registers=st.integers(0, 3),
)
def test_derived_sizes(grid, patch, heads, head_dim, registers):
    cfg = ViTConfig(
        image_size=(grid[0] * patch[0], grid[1] * patch[1]),
        patch_size=patch,
        hidden_size=heads * head_dim,
        num_heads=heads,
        register_tokens=registers,
    )
    assert (cfg.grid, cfg.num_patches, cfg.head_dim) == (grid, grid[0] * grid[1], head_dim)
    assert cfg.num_prefix_tokens == cfg.num_prefix_rows == 1 + registers
    assert cfg.patch_dim == patch[0] * patch[1] * 3


def test_one_integer_is_a_square():
    assert ViTConfig(image_size=32, patch_size=8).grid == (4, 4)


def test_bad_json_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"depth": 3')
    with pytest.raises(ConfigError, match="not valid JSON at line 1"):
        ViTConfig.load(path)
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="expected a JSON object, found list"):
        ViTConfig.load(path)
    path.write_text('{"dept": 3}')
    with pytest.raises(ConfigError, match=r"config.json: ViTConfig has no field 'dept'; did you mean"):
        ViTConfig.load(path)


def test_presets_by_name():
    assert preset("digits").num_classes == 10
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        preset("digit")


def test_recipe_contradictions():
    for changes, parts in [
        ({"warmup_epochs": 10.0}, ("warmup_epochs = 10.0", "epochs = 10")),
        ({"final_learning_rate": 1.0}, ("final_learning_rate = 1.0", "learning_rate = 0.001")),
        ({"schedule": "constant", "final_learning_rate": 1e-4}, ("0.0001", "constant")),
    ]:
        with pytest.raises(ConfigError) as caught:
            Recipe(**changes)
        assert all(part in str(caught.value) for part in parts)


def test_presets_build_in_both_twins():
    for cfg in PRESETS.values():
        ours = vit_jax.weights.abstract_model(cfg)
        assert vit_jax.count_parameters(ours) == vit_torch.count_parameters(
            vit_torch.weights.abstract_model(cfg)
        )
    assert torch.get_default_device() == torch.device("cpu")
