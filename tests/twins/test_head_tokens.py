"""Where the logits are enough, the last block computes only the tokens that the head reads."""

from itertools import product

import jax
import pytest
import torch

import vit_torch
from tests.support.peers import EXACT, nchw, random_images, redrawn, run_jax, run_torch
from tests.support.tiny import TINY, error, variant
from vit_jax.functional import get_params, make_apply
from vit_jax.weights import abstract_model

KINDS = (
    "plain", "distilled", "registers", "rope_mixed", "rel_pos_bias", "grouped", "narrow_heads",
    "sub_norms", "swiglu", "res_post", "parallel", "branches", "differential", "differential_parallel",
    "per_head_bare", "tanh_before_head", "softmax",
)  # fmt: skip


COMPILED = {
    "plain", "distilled", "rope_mixed", "rel_pos_bias", "grouped", "branches", "differential_parallel",
    "per_head_bare",
}  # fmt: skip
"""What every run compiles for JAX: each way to make queries of the first tokens alone."""


def _cases():
    for name, run in product(KINDS, (run_torch, run_jax)):
        always = run is run_torch or name in COMPILED
        yield pytest.param(name, run, marks=[] if always else pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "run"), [*_cases()])
def test_the_logits_are_the_same(name, run):
    cfg = variant(name)
    arrays, images = redrawn(cfg), random_images(cfg)
    whole, short = run(cfg, arrays, images), run(cfg, arrays, images, return_tokens=False)
    assert error(short.logits, whole.logits) <= EXACT
    assert error(short.pooled, whole.pooled) <= EXACT
    assert short.prefix_tokens is None
    assert short.patch_tokens is None


def test_the_gradients_are_the_same():
    arrays, images = redrawn(TINY), random_images(TINY)
    gradients = []
    for return_tokens in (True, False):
        model = vit_torch.from_arrays(TINY, arrays)
        model(nchw(images), return_tokens=return_tokens).logits.square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    whole, short = gradients
    assert all(error(short[name], whole[name]) <= EXACT for name in whole)


def operations(cfg, **options):
    """FLOPs of a forward pass, as XLA counts them before it compiles."""
    apply, params = make_apply(cfg), get_params(abstract_model(cfg))
    images = jax.ShapeDtypeStruct((2, *cfg.image_size, cfg.in_channels), "float32")
    lowered = jax.jit(lambda p, x: apply(p, x, **options).logits).lower(params, images)
    return lowered.cost_analysis()["flops"]


@pytest.mark.quick
def test_the_last_block_is_cheap_where_a_token_is_pooled_and_as_it_was_where_all_are():
    for name, cheaper in {
        "plain": True,
        "registers": True,
        "res_post": True,
        "branches": True,
        "mean_post_norm": False,
        "map": False,
    }.items():
        cfg = variant(name).replace(depth=1)
        whole, short = operations(cfg), operations(cfg, return_tokens=False)
        assert (short < 0.8 * whole) if cheaper else short == whole, name


@pytest.mark.quick
@pytest.mark.parametrize("name", ["plain", "res_post", "branches"])
def test_the_last_block_of_pytorch_returns_the_pooled_token_alone(name):
    cfg, seen = variant(name).replace(depth=1), []
    model = vit_torch.from_arrays(cfg, redrawn(cfg))
    model.blocks[0].register_forward_hook(lambda _, __, output: seen.append(output[0].shape))
    model.logits(nchw(random_images(cfg)))
    assert seen == [(2, 1, 30)]


@pytest.mark.quick
def test_blocks_and_attention_are_whole_where_they_are_asked_for():
    model = vit_torch.from_arrays(TINY, redrawn(TINY))
    with torch.no_grad():
        images = nchw(random_images(TINY))
        output = model(images, return_tokens=False, return_blocks=True, return_attention=True)
    tokens = TINY.num_prefix_tokens + TINY.num_patches
    assert output.blocks[-1].shape[1] == tokens
    assert output.attention[-1].shape[2] == tokens
