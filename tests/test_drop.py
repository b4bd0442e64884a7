"""Dropout and stochastic depth: the right share, the right scale, the right shape, in both twins."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from tiny import error, variant

import vit_jax
import vit_jax.drop
import vit_torch.drop
from parity.pairing import to_torch

X = np.random.default_rng(0).standard_normal((400, 7, 11)).astype(np.float32)


def _both(kind, rate):
    ours = getattr(vit_jax.drop, kind)(rate)(jnp.asarray(X), rngs=nnx.Rngs(dropout=3))
    torch.manual_seed(3)
    theirs = getattr(vit_torch.drop, kind)(rate).train()(torch.from_numpy(X))
    return np.asarray(ours), theirs.numpy()


@pytest.mark.parametrize("kind", ["Dropout", "DropPath"])
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_share_and_scale(kind, rate):
    for y in _both(kind, rate):
        kept = y != 0
        draws = len(X) if kind == "DropPath" else X.size
        # five standard errors of a binomial share
        assert abs(kept.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / draws)
        np.testing.assert_allclose(y[kept], (X / (1 - rate))[kept], rtol=1e-6)
        if kind == "DropPath":
            per_image = kept.reshape(len(X), -1)
            assert np.all(per_image.all(axis=1) | ~per_image.any(axis=1))


@pytest.mark.parametrize("kind", ["Dropout", "DropPath"])
def test_rate_zero_and_evaluation_change_nothing(kind):
    for y in _both(kind, 0.0):
        np.testing.assert_array_equal(y, X)
    ours, theirs = getattr(vit_jax.drop, kind)(0.5), getattr(vit_torch.drop, kind)(0.5).eval()
    np.testing.assert_array_equal(ours(jnp.asarray(X)), X)
    np.testing.assert_array_equal(theirs(torch.from_numpy(X)).numpy(), X)


def test_same_masks_give_the_same_training_pass(monkeypatch, x64):
    """Random streams differ between frameworks, so the masks are injected; everything else agrees."""
    cfg = variant("dropout")
    images = np.random.default_rng(1).standard_normal((4, *cfg.image_size, 3))

    def masks():
        stream = np.random.default_rng(5)
        return lambda shape: stream.random(shape)

    draw = masks()
    monkeypatch.setattr(
        "jax.random.bernoulli", lambda key, keep, shape: jnp.asarray(draw(tuple(shape)) < keep)
    )
    model = vit_jax.ViT(cfg, rngs=nnx.Rngs(0))
    arrays = {name: value.astype(np.float64) for name, value in vit_jax.to_arrays(model).items()}
    model = vit_jax.from_arrays(cfg, arrays)
    ours = model(jnp.asarray(images), rngs=nnx.Rngs(dropout=0)).logits
    plain = model(jnp.asarray(images)).logits

    draw = masks()
    monkeypatch.setattr("torch.rand", lambda shape, device: torch.from_numpy(draw(tuple(shape))))
    theirs = to_torch(model).train()(torch.from_numpy(images).permute(0, 3, 1, 2)).logits
    assert error(theirs.detach(), ours) < 1e-12
    assert error(plain, ours) > 1e-2


def test_block_rates_grow_linearly():
    assert variant("dropout").block_drop_rates == pytest.approx((0.0, 0.3, 0.6))
