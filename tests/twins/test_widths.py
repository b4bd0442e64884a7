"""Heads of a width of their own, and the layers at the end: both twins against a few lines of numpy."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import vit_jax
import vit_torch
from parity.measure.redraw import redraw
from tests.support.tiny import TINY, error
from vit_config.parameters import parameters
from vit_config.rope import Rope

IMAGES = np.random.default_rng(0).standard_normal((2, *TINY.image_size, 3))  # (B, H, W, C)


def _arrays(cfg):
    return {name: redraw(name, p.kind, p.shape, seed=0) for name, p in parameters(cfg).items()}


def _linear(arrays, name, x):
    return x @ arrays[f"{name}.weight"].T + arrays.get(f"{name}.bias", 0.0)


def _softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def _outputs(cfg):
    """The output of each twin in float64."""
    arrays = _arrays(cfg)
    ours = vit_jax.from_arrays(cfg, arrays)(jnp.asarray(IMAGES))
    with torch.no_grad():
        theirs = vit_torch.from_arrays(cfg, arrays)(torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
    return ours, theirs


@pytest.mark.parametrize(
    ("h", "kv", "d"), [(4, 4, 7), (5, 5, 6), (3, 1, 16), (6, 2, 4)], ids=lambda each: str(each)
)
def test_attention_with_heads_of_any_width(h, kv, d, x64):
    cfg = TINY.replace(num_heads=h, num_kv_heads=kv, attention_head_dim=d)
    arrays = _arrays(cfg)
    x = np.random.default_rng(1).standard_normal((2, 10, 30))  # (B, N, D)
    q, k, v = np.split(_linear(arrays, "blocks.0.attn.qkv", x), [h * d, (h + kv) * d], axis=-1)
    heads = []
    for head in range(h):
        mine, shared = (slice(i * d, i * d + d) for i in (head, head * kv // h))
        weights = _softmax(q[..., mine] @ k[..., shared].transpose(0, 2, 1) / np.sqrt(d))
        heads.append(weights @ v[..., shared])
    expected = _linear(arrays, "blocks.0.attn.proj", np.concatenate(heads, axis=-1))
    ours, _ = vit_jax.from_arrays(cfg, arrays).blocks[0].attn(jnp.asarray(x))
    theirs, _ = vit_torch.from_arrays(cfg, arrays).get_submodule("blocks.0.attn")(torch.from_numpy(x))
    assert error(ours, expected) < 1e-14
    assert error(theirs.detach(), expected) < 1e-14


def test_the_default_width_spelled_out_is_the_same_model(x64):
    for default, spelled in zip(
        _outputs(TINY), _outputs(TINY.replace(attention_head_dim=6)), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(default.logits), np.asarray(spelled.logits))


@pytest.mark.parametrize(
    "changes",
    [
        {"block": "res_post", "rope": Rope(theta=100.0)},
        {"block": "parallel"},
        {"num_parallel": 2, "rope": Rope(theta=100.0)},
        {"attention": "differential"},
    ],
)
def test_both_twins_have_blocks_of_every_kind(changes, x64):
    ours, theirs = _outputs(TINY.replace(hidden_size=40, depth=1, **changes))
    assert error(ours.logits, theirs.logits) < 1e-13


@pytest.mark.parametrize("changes", [{}, {"head_bias": False}, {"pool": "class_mean"}])
def test_tanh_before_the_head(changes, x64):
    cfg = TINY.replace(head_hidden=17, **changes)
    arrays = _arrays(cfg)
    assert ("head.bias" in arrays) == cfg.head_bias
    for output in _outputs(cfg):
        pooled = np.asarray(output.pooled)
        hidden = np.tanh(_linear(arrays, "pre_logits", pooled))  # (B, 17)
        assert pooled.shape == (2, cfg.head_inputs)
        assert error(output.logits, _linear(arrays, "head", hidden)) < 1e-14


def test_without_a_head_the_tanh_layer_gives_the_logits(x64):
    cfg = TINY.replace(head_hidden=17, num_classes=0)
    for output in _outputs(cfg):
        hidden = np.tanh(_linear(_arrays(cfg), "pre_logits", np.asarray(output.pooled)))
        assert output.logits.shape == (2, cfg.num_logits) == (2, 17)
        assert error(output.logits, hidden) < 1e-14


@pytest.mark.parametrize("changes", [{"num_classes": 0}, {"num_classes": 0, "pool": "class_mean"}, {}])
def test_width_of_the_logits(changes):
    cfg = TINY.replace(**changes)
    model = vit_torch.ViT(cfg).double()
    assert model(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)).logits.shape == (2, cfg.num_logits)


def test_what_the_head_sees_is_dropped_after_tanh():
    model = vit_torch.ViT(TINY.replace(head_hidden=17, dropout_head=0.5)).train()
    seen = {}
    model.pre_logits.register_forward_hook(lambda _, __, output: seen.update(layer=output))
    model.head_drop.register_forward_hook(lambda _, args, output: seen.update(dropped=args[0]))
    model(torch.from_numpy(IMAGES).float().permute(0, 3, 1, 2))
    assert torch.equal(seen["dropped"], torch.tanh(seen["layer"]))


def test_attention_pooling_has_heads_of_its_own(x64):
    """Three heads where the blocks have five."""
    cfg = TINY.replace(pool="map", class_token=False, pool_num_heads=3, pool_mlp_dim=37)
    arrays = _arrays(cfg)
    for name in ("weight", "bias"):
        arrays[f"attn_pool.mlp.fc2.{name}"] *= 0.0  # attention alone
    x = np.random.default_rng(1).standard_normal((2, 9, 30))  # (B, N, D)
    q = _linear(arrays, "attn_pool.q", arrays["attn_pool.latent"][0]).reshape(1, 3, 10)
    k, v = (
        each.reshape(2, 9, 3, 10) for each in np.split(_linear(arrays, "attn_pool.kv", x), 2, axis=-1)
    )
    weights = _softmax(np.einsum("qhd,bnhd->bhqn", q, k) / np.sqrt(10))
    heads = np.einsum("bhqn,bnhd->bqhd", weights, v).reshape(2, 30)
    y = _linear(arrays, "attn_pool.proj", heads)
    for twin, given in ((vit_jax, jnp.asarray(x)), (vit_torch, torch.from_numpy(x))):
        actual = twin.from_arrays(cfg, arrays).attn_pool(given)
        assert error(actual.detach() if twin is vit_torch else actual, y) < 1e-14
