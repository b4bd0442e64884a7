"""The schema: strict, JSON both ways, no contradiction accepted, no field that does nothing."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vit_jax
import vit_torch
from tests.support.flips import BASE, FLIPS
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import PRESETS, ConfigError, InputError, ViTConfig, preset
from vit_config.init import initial_draws
from vit_config.presets.own import OWN
from vit_config.rope import Rope

pytestmark = [pytest.mark.versions, pytest.mark.quick]


def _flip(field):
    """BASE with the companions of a flip, and that with the field flipped."""
    flip = FLIPS[field]
    base = BASE.replace(**flip.companions)
    assert getattr(base, field) != flip.value
    return base, base.replace(**{field: flip.value})


def _images(height, width):
    return torch.from_numpy(np.random.default_rng(0).standard_normal((3, 3, height, width), np.float32))


@cache
def _function(cfg, size):
    """Everything a schema decides: tree, initial distributions, output, output in training.

    Of the PyTorch twin, which compiles nothing; that a field does the same in the other one is what
    the checks of every variant prove.
    """
    torch.manual_seed(0)
    model = vit_torch.ViT(cfg)
    leaves = vit_torch.leaves.leaves(model)
    tree = {leaf.name: leaf.shape for leaf in leaves}
    draws = initial_draws(cfg, {leaf.name: leaf.kind for leaf in leaves}, tree)
    logits = []
    with torch.no_grad():
        for training in (False, True):
            torch.manual_seed(7)
            logits.append(model.train(training)(_images(*size)).logits.numpy())
    return tree, draws, np.stack(logits)


@pytest.mark.parametrize("field", FLIPS)
def test_no_field_is_dead(field):
    base, flipped = _flip(field)
    size = BASE.image_size
    if field == "patch_remainder":
        with pytest.raises(ConfigError, match="not divisible"):
            base.replace(image_size=(24, 19))
        assert flipped.replace(image_size=(24, 19)).grid == base.grid
        return
    if field == "dynamic_image_size":
        with pytest.raises(InputError):
            vit_torch.ViT(base)(_images(14, 10))
        small = vit_torch.ViT(flipped).eval()(_images(14, 10))
        assert small.patch_tokens.shape == (3, 4, BASE.hidden_size)
        return
    if field in ("pos_embed_resize", "pos_embed_aspect"):
        size = (14, 15)
    if field in ("image_size", "in_channels"):
        with pytest.raises(InputError, match=field):
            vit_torch.ViT(flipped)(_images(*size))
        return
    tree, draws, logits = _function(base, size)
    new_tree, new_draws, new_logits = _function(flipped, size)
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
        ({"pos_embed": "sincos1d", "pos_embed_grid": (2, 3)}, ("pos_embed_grid = (2, 3)", '"sincos1d"')),
        ({"pos_embed": "factorized"}, ("factorized", "pos_embed_grid = null")),
        (
            {"pos_embed_aspect": "keep", "pos_embed_resize": "leading_rows"},
            ('"keep"', '"leading_rows"'),
        ),
        ({"image_size": (6, 15), "patch_remainder": "crop"}, ("smaller than one patch", "(7, 5)")),
        (
            {"hidden_size": 48, "num_heads": 6, "num_kv_heads": 2, "rope": Rope(kind="mixed")},
            ("mixed", "num_kv_heads = 2"),
        ),
        ({"distill_token": True, "pool": "mean"}, ("distill_token = true", 'pool = "mean"')),
        ({"distill_token": True, "final_norm": "post_pool"}, ("distill_token", "post_pool")),
        ({"rope": Rope()}, ("heads of 4 n", "num_heads = 5 make 6")),
        ({"rel_pos_bias": True, "register_tokens": 1}, ("rel_pos_bias", "2 tokens")),
        ({"rel_pos_bias": True, "dynamic_image_size": True}, ("rel_pos_bias", "dynamic_image_size")),
        ({"rel_pos_bias": True, "dropout_patch": 0.1}, ("rel_pos_bias", "dropout_patch = 0.1")),
        ({"k_bias": False, "qkv_bias": False}, ("k_bias = false", "qkv_bias = false")),
        ({"attention": "differential", "num_heads": 2}, ("differential", "15 values")),
        ({"num_kv_heads": (5, 1)}, ("num_kv_heads has 2 numbers", "depth = 3")),
        ({"num_kv_heads": 2}, ("num_kv_heads = 2", "num_heads = 5")),
        ({"attention": "per_head", "num_kv_heads": 1}, ("per_head", "num_kv_heads = 1")),
        ({"attention": "differential", "k_bias": False}, ("differential", "k_bias = false")),
        ({"layer_scale_on": "attention"}, ("layer_scale_on", "layer_scale = null")),
        ({"num_parallel": 2, "block": "res_post"}, ("num_parallel = 2", '"res_post"')),
        ({"block": "parallel", "mlp": "swiglu"}, ('block = "parallel"', 'mlp = "swiglu"')),
        ({"block": "parallel", "mlp_bias": False}, ('block = "parallel"', "mlp_bias = false")),
        ({"block": "parallel", "attention": "per_head"}, ('block = "parallel"', '"per_head"')),
        ({"pool": "class_mean", "final_norm": "post_pool"}, ("class_mean", "post_pool")),
        ({"pool_prefix": True}, ("pool_prefix = true", 'pool = "class"')),
        ({"pool_num_heads": 3}, ('pool = "class"', "pool_num_heads = 3")),
        ({"pool": "map", "pool_num_heads": 7}, ("pool_num_heads = 7", "hidden_size = 30")),
        ({"num_classes": 0, "dropout_head": 0.1}, ("dropout_head = 0.1", "num_classes = 0")),
        ({"pos_embed": "sincos1d", "hidden_size": 15}, ("sincos1d", "hidden_size = 15")),
        ({"pos_embed_prefix": "class"}, ('pos_embed_prefix = "class"', "register_tokens = 0")),
        (
            {"attention_head_dim": 7, "attention_out_proj": False, "attention_out_bias": False},
            ("attention_out_proj = false", "hidden_size = 30", "attention_head_dim = 7 make 35"),
        ),
        ({"attention_head_dim": 7, "rope": Rope()}, ("heads of 4 n", "attention_head_dim = 7")),
        ({"attention": "per_head", "attention_head_dim": 7}, ("per_head", "attention_head_dim = 7")),
        ({"attention": "differential", "attention_head_dim": 8}, ("differential", "attention_head_dim")),
        ({"block": "parallel", "attention_head_dim": 7}, ('"parallel"', "attention_head_dim = 7")),
        ({"pool": "map", "num_heads": 4, "attention_head_dim": 7}, ('"map"', "num_heads = 4", "= 30")),
        ({"head_hidden": 17, "distill_token": True}, ("head_hidden = 17", "distill_token = true")),
        ({"head_bias": False, "num_classes": 0}, ("head_bias = false", "num_classes = 0")),
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


@pytest.mark.parametrize("cfg", [*OWN.values(), *(variant(name) for name in VARIANTS)])
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


@pytest.mark.parametrize("name", [*OWN, "vit_base_patch16_224", "eva02_base_patch14_224", "test_vit3"])
def test_presets_build_in_both_twins(name):
    ours = vit_jax.weights.abstract_model(PRESETS[name])
    theirs = vit_torch.weights.abstract_model(PRESETS[name])
    assert vit_jax.count_parameters(ours) == vit_torch.count_parameters(theirs)
    assert torch.get_default_device() == torch.device("cpu")
