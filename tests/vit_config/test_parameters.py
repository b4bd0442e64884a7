"""The parameters that a schema names by itself are those that both twins build from it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vit_jax.leaves
import vit_jax.weights
import vit_torch.leaves
import vit_torch.weights
from tests.support.flips import BASE, FLIPS
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import PRESETS, ConfigError
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

SAMPLE = ("vit_base_patch16_224", "eva02_base_patch14_224", "beit_base_patch16_224", "test_vit3")


def _named(cfg):
    return {name: (parameter.shape, parameter.kind) for name, parameter in parameters(cfg).items()}


def _built(cfg, twin):
    leaves = twin.leaves.leaves(twin.weights.abstract_model(cfg))
    return {leaf.name: (leaf.shape, leaf.kind) for leaf in leaves}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_in_torch(name):
    assert _named(variant(name)) == _built(variant(name), vit_torch)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_in_jax(name):
    assert _named(variant(name)) == _built(variant(name), vit_jax)


@pytest.mark.parametrize("field", FLIPS)
def test_every_field(field):
    flip = FLIPS[field]
    cfg = BASE.replace(**{**flip.companions, field: flip.value})
    assert _named(cfg) == _built(cfg, vit_torch)


@pytest.mark.parametrize(
    "changes",
    [{"mlp": "swiglu"}, {"block": "parallel"}, {"block": "parallel", "attention": "differential"}],
)
def test_without_biases(changes):
    without = {"qkv_bias": False, "attention_out_bias": False, "mlp_bias": False}
    cfg = TINY.replace(depth=1, **without, **changes)
    for twin in (vit_jax, vit_torch):
        assert _named(cfg) == _built(cfg, twin)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(names=st.lists(st.sampled_from(list(VARIANTS)), min_size=2, max_size=4))
def test_combinations(names):
    cfg = TINY
    for name in names:
        try:
            cfg = cfg.replace(**VARIANTS[name])
        except ConfigError:  # contradicts an earlier one
            continue
    assert _named(cfg) == _built(cfg, vit_torch)


@pytest.mark.parametrize("name", SAMPLE)
def test_presets(name):
    assert _named(PRESETS[name]) == _built(PRESETS[name], vit_torch)


@pytest.mark.exhaustive
def test_all_presets():
    assert [name for name, cfg in PRESETS.items() if _named(cfg) != _built(cfg, vit_torch)] == []


def test_order_is_that_of_the_forward_pass():
    cfg = TINY.replace(depth=1, layer_scale=0.1, norm="rmsnorm", qkv_bias=False, mlp_bias=False)
    assert list(parameters(cfg)) == [
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
        "cls_token",
        "pos_embed",
        "blocks.0.norm1.weight",
        "blocks.0.attn.qkv.weight",
        "blocks.0.attn.proj.weight",
        "blocks.0.attn.proj.bias",
        "blocks.0.ls1.gamma",
        "blocks.0.norm2.weight",
        "blocks.0.mlp.fc1.weight",
        "blocks.0.mlp.fc2.weight",
        "blocks.0.ls2.gamma",
        "norm.weight",
        "head.weight",
        "head.bias",
    ]
