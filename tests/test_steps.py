"""Optimiser steps: the twins stay together in float64, and each formula is the one written down."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from tiny import TINY, error

import vit_jax
import vit_torch
from parity.redraw import redraw
from vit_config import Recipe
from vit_config.recipe import is_decayed
from vit_config.schedule import learning_rate
from vit_jax.functional import get_params, make_merge
from vit_jax.leaves import leaves
from vit_jax.loss import cross_entropy
from vit_jax.step import init_state, make_eval_step, make_train_step
from vit_torch.loss import cross_entropy as torch_cross_entropy
from vit_torch.optim import clip_by_global_norm, make_optimizer
from vit_torch.step import make_eval_step as make_torch_eval_step
from vit_torch.step import make_train_step as make_torch_step

STEPS_PER_EPOCH = 4
RECIPE = Recipe(
    epochs=5,
    warmup_epochs=1.0,
    learning_rate=3e-3,
    final_learning_rate=1e-5,
    weight_decay=0.05,
    clip_norm=1.0,
    label_smoothing=0.1,
    dtype="float64",
)


def _start(cfg, recipe):
    """The same re-drawn weights in a JAX state and a torch model."""
    arrays = {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0)
        for leaf in leaves(vit_jax.weights.abstract_model(cfg))
    }
    model = vit_jax.from_arrays(cfg, arrays)
    state = init_state(cfg, recipe, STEPS_PER_EPOCH)._replace(params=get_params(model))
    return state, vit_torch.from_arrays(cfg, arrays)


def _batches(count):
    stream = np.random.default_rng(1)
    for _ in range(count):
        yield stream.standard_normal((6, *TINY.image_size, 3)), stream.integers(0, 11, 6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adam", "decay": "all"},
        pytest.param(
            {
                "clip_norm": None,
                "schedule": "constant",
                "final_learning_rate": 0.0,
                "label_smoothing": 0.0,
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["adamw", "adam", "plain"],
)
def test_twenty_steps_agree_in_float64(changes, x64):
    recipe = Recipe.from_json(RECIPE.to_json()).replace(**changes)
    state, model = _start(TINY, recipe)
    step = jax.jit(make_train_step(TINY, recipe, STEPS_PER_EPOCH))
    torch_step = make_torch_step(model, recipe, make_optimizer(model, recipe), STEPS_PER_EPOCH)
    merge = make_merge(TINY)
    largest = 0.0
    for number, (images, labels) in enumerate(_batches(20)):
        state, ours = step(state, {"image": images, "label": labels})
        images = torch.from_numpy(images).permute(0, 3, 1, 2)
        theirs = torch_step(number, {"image": images, "label": torch.from_numpy(labels)})
        largest = max(largest, float(ours["grad_norm"]))
        for name in ("loss", "accuracy", "grad_norm", "learning_rate"):
            assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-11), name
    ours, theirs = vit_jax.to_arrays(merge(state.params)), vit_torch.to_arrays(model)
    # Softmax ignores the key bias: its gradient is zero in theory, rounding noise in practice, and Adam
    # divides that noise by its epsilon. What the noise can become in 20 steps:
    noise = 20 * recipe.learning_rate * np.finfo(float).eps * largest / recipe.adam_eps
    D = TINY.hidden_size
    for name, value in ours.items():
        other = theirs[name]
        if name.endswith("qkv.bias"):
            assert np.abs(value - other)[D : 2 * D].max() < noise
            value, other = (np.delete(x, np.s_[D : 2 * D]) for x in (value, other))
        assert error(value, other) < 1e-11, name


def test_evaluation_counts_only_what_the_mask_keeps():
    recipe = RECIPE.replace(dtype="float32")
    state = init_state(TINY, recipe, STEPS_PER_EPOCH)
    images, labels = next(_batches(1))
    mask = np.array([1, 1, 1, 1, 0, 0], np.float32)
    batch = {"image": images.astype(np.float32), "label": labels, "mask": mask}
    ours = jax.jit(make_eval_step(TINY, recipe))(state.params, batch)
    model = vit_torch.from_arrays(TINY, vit_jax.to_arrays(make_merge(TINY)(state.params)))
    tensors = {name: torch.from_numpy(value) for name, value in batch.items()}
    tensors["image"] = tensors["image"].permute(0, 3, 1, 2)
    theirs = make_torch_eval_step(model, recipe)(tensors)
    assert float(ours["count"]) == float(theirs["count"]) == 4
    assert float(ours["correct"]) == float(theirs["correct"])
    assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_loss_is_torchs_cross_entropy(smoothing, x64):
    stream = np.random.default_rng(0)
    logits, labels = stream.standard_normal((5, 7)), stream.integers(0, 7, 5)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(labels), reduction="none", label_smoothing=smoothing
    )
    ours = cross_entropy(jnp.asarray(logits), jnp.asarray(labels), smoothing=smoothing)
    theirs = torch_cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels), smoothing=smoothing)
    assert error(ours, expected) < 1e-14
    assert error(theirs, expected) < 1e-14


def test_schedule_by_hand():
    recipe = Recipe(epochs=4, warmup_epochs=1.0, learning_rate=2.0, final_learning_rate=0.5)
    rates = learning_rate(recipe, np.arange(40), 10)
    np.testing.assert_allclose(rates[:10], 2.0 * np.arange(1, 11) / 10)
    assert rates[10] == 2.0  # the cosine starts at the peak
    assert rates[25] == pytest.approx(1.25)  # and is half way down in the middle
    assert rates[39] > 0.5  # it would reach the end one step after the last
    assert learning_rate(recipe, 40, 10) == pytest.approx(0.5)
    # without warm-up it is torch's CosineAnnealingLR
    recipe = Recipe(epochs=4, learning_rate=2.0, final_learning_rate=0.5)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.5)
    for step in range(40):
        assert float(learning_rate(recipe, step, 10)) == pytest.approx(
            scheduler.get_last_lr()[0], rel=1e-12
        )
        optimizer.step()
        scheduler.step()


def test_schedule_is_float64_under_jit_with_x64(x64):
    rate = jax.jit(lambda step: learning_rate(RECIPE, step, 7, jnp))
    for step in range(30):
        assert float(rate(jnp.int32(step))) == pytest.approx(
            float(learning_rate(RECIPE, step, 7)), rel=1e-15
        )


def test_clipping_is_optaxs_and_adds_nothing_to_the_norm(x64):
    grads = {"a": np.array([3.0, 4.0]), "b": np.array([[12.0]])}  # norm 13
    expected, _ = optax.clip_by_global_norm(6.5).update(grads, optax.EmptyState())
    ours, _ = vit_jax.optim.clip_by_global_norm(6.5).update(
        {name: jnp.asarray(value) for name, value in grads.items()}, optax.EmptyState()
    )
    params = [torch.nn.Parameter(torch.zeros(value.shape).double()) for value in grads.values()]
    for parameter, value in zip(params, grads.values(), strict=True):
        parameter.grad = torch.from_numpy(value.copy())
    assert clip_by_global_norm(params, 6.5) == 13.0
    for name, parameter in zip(grads, params, strict=True):
        np.testing.assert_allclose(ours[name], grads[name] / 2, rtol=1e-15)
        np.testing.assert_allclose(expected[name], ours[name], rtol=1e-15)
        np.testing.assert_allclose(parameter.grad, ours[name], rtol=1e-15)


def test_what_decays():
    assert is_decayed(RECIPE, "blocks.0.attn.qkv.weight", 2)
    assert is_decayed(RECIPE, "patch_embed.proj.weight", 4)
    assert is_decayed(RECIPE, "blocks.0.attn.qkv_weight", 4)
    for name, ndim in [("pos_embed", 3), ("cls_token", 3), ("norm.weight", 1), ("head.bias", 1)]:
        assert not is_decayed(RECIPE, name, ndim)
        assert is_decayed(RECIPE.replace(decay="all"), name, ndim)
