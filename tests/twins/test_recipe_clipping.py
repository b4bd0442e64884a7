"""Clipping to a global norm is optax's, and with an epsilon torch's, in both twins, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from tests.support.recipe_sides import (
    BASE,
    MATRICES,
    PER_EPOCH,
    assert_equal,
    by_jax,
    by_torch,
    by_torch_optim,
    gradients,
    set_gradients,
    small,
)
from vit_config.schedule import learning_rate
from vit_jax.optim import clip_by_global_norm
from vit_torch.optim import clip_by_global_norm as torch_clip
from vit_torch.optim import make_optimizer
from vit_torch.step import make_update

pytestmark = pytest.mark.quick


def _both_clips(grads, max_norm, eps):
    """The gradients clipped by both twins, and the norm that PyTorch's says."""
    ours = {name: jnp.asarray(value) for name, value in grads.items()}
    ours, _ = clip_by_global_norm(max_norm, eps).update(ours, optax.EmptyState())
    model = small()
    set_gradients(model, grads)
    norm = torch_clip(model.parameters(), max_norm, eps)
    return jax.device_get(ours), {n: p.grad.numpy() for n, p in model.named_parameters()}, float(norm)


def _norm(grads):
    return float(np.sqrt(sum((value**2).sum() for value in grads.values())))


def _scaled(grads, norm):
    return {name: value * (norm / _norm(grads)) for name, value in grads.items()}


@pytest.mark.parametrize("norm", [1e-8, 0.7, 2.0 - 5e-7, 2.0, 31.0])
def test_clipping_is_optaxs_and_with_an_epsilon_torchs(norm, x64):
    grads = _scaled(gradients(1)[0], norm)
    expected, _ = optax.clip_by_global_norm(2.0).update(
        {name: jnp.asarray(value) for name, value in grads.items()}, optax.EmptyState()
    )
    for actual in (both := _both_clips(grads, 2.0, 0.0))[:2]:
        assert_equal(actual, jax.device_get(expected))
    assert both[2] == pytest.approx(norm, rel=1e-13)

    model = small()
    set_gradients(model, grads)
    assert float(torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)) == pytest.approx(
        norm, rel=1e-13
    )
    for actual in _both_clips(grads, 2.0, 1e-6)[:2]:
        assert_equal(actual, {name: p.grad.numpy() for name, p in model.named_parameters()})


@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_a_zero_gradient_stays_zero(eps, x64):
    grads = {name: np.zeros_like(value) for name, value in gradients(1)[0].items()}
    for result in (both := _both_clips(grads, 2.0, eps))[:2]:
        for value in result.values():
            assert not value.any()  # false for NaN: it is not zero
    assert both[2] == 0.0


def test_an_update_clips_before_all_else(x64):
    """Clipped gradients reach momentum and coupled decay, which is not clipped."""
    recipe = BASE.replace(optimizer="sgd", clip_norm=2.0, clip_eps=1e-6)
    ours, theirs = by_jax(recipe, gradients())[0], by_torch(recipe, gradients())[0]
    peer = by_torch_optim(
        recipe,
        lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=BASE.weight_decay),
        MATRICES,
        before=lambda model, rate: torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0),
    )
    assert_equal(ours, peer)
    assert_equal(theirs, peer)


def test_an_update_says_its_norm_and_its_rate():
    """Of what has a gradient."""
    model, grads = small(), gradients(1)[0]
    set_gradients(model, grads)
    model.pos_embed.grad = None
    metrics = make_update(model, BASE, make_optimizer(model, BASE), PER_EPOCH)(5)
    assert float(metrics["learning_rate"]) == float(learning_rate(BASE, 5, PER_EPOCH))
    del grads["pos_embed"]
    assert float(metrics["grad_norm"]) == pytest.approx(_norm(grads), rel=1e-13)
