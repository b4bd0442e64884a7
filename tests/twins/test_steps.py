"""Optimiser steps: the twins stay together in float64, and in bfloat16 to its grain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import vit_jax
import vit_torch
from parity.measure.redraw import redraw
from parity.measure.tolerance import LIMITS, RATIO, epsilon
from tests.support.tiny import TINY, error
from vit_config import Recipe
from vit_config.recipe import is_decayed
from vit_jax.functional import get_params, make_merge
from vit_jax.leaves import leaves
from vit_jax.step import init_state, make_eval_step, make_gradients, make_train_step
from vit_torch.optim import init_ema, make_optimizer
from vit_torch.step import make_eval_step as make_torch_eval_step
from vit_torch.step import make_gradients as make_torch_gradients
from vit_torch.step import make_train_step as make_torch_step

pytestmark = pytest.mark.versions

CFG = TINY.replace(depth=2)
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
    params = get_params(model)
    state = init_state(cfg, recipe, STEPS_PER_EPOCH)
    state = state._replace(params=params, ema=None if recipe.ema is None else params)
    return state, vit_torch.from_arrays(cfg, arrays)


def _batches(count):
    stream = np.random.default_rng(1)
    for _ in range(count):
        yield stream.standard_normal((6, *CFG.image_size, 3)), stream.integers(0, 11, 6)


PLAIN = {"clip_norm": None, "schedule": "constant", "final_learning_rate": 0.0, "label_smoothing": 0.0}
SPREAD = {
    "adamw": {},
    "adam": {"optimizer": "adam", "decay": "all", "schedule": "linear"},
    "plain": PLAIN,
    "sgd": {"optimizer": "sgd", "nesterov": True, "learning_rate": 0.1, "clip_eps": 1e-6},
    "sigmoid": {"loss": "sigmoid", "schedule": "step", "step_epochs": 1.5, "final_learning_rate": 0.0},
    "parts": {"accumulate": 3, "ema": 0.9, "batch_size": 6},
    "big_vision": {
        "decay_times": "schedule",
        "decay": "not_vectors",
        "loss": "sigmoid_mean",
        "schedule": "rsqrt",
        "rsqrt_epochs": 1.0,
        "warmup_start": 0.0,
        "final_learning_rate": 0.0,
    },
    "timm": {"schedule_unit": "epoch", "warmup_overlaps": True, "warmup_start": 1e-5, "clip_eps": 1e-6},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] if name == "parts" else [pytest.mark.exhaustive] * (turn > 0)
        )
        for turn, name in enumerate(SPREAD)
    ],
)
def test_twenty_steps_agree_in_float64(name, x64):
    recipe = Recipe.from_json(RECIPE.to_json()).replace(**SPREAD[name])
    state, model = _start(CFG, recipe)
    step = jax.jit(make_train_step(CFG, recipe, STEPS_PER_EPOCH))
    ema = init_ema(recipe, model)
    optimizer = make_optimizer(model, recipe)
    torch_step = make_torch_step(model, recipe, optimizer, STEPS_PER_EPOCH, ema)
    merge = make_merge(CFG)
    largest = 0.0
    for number, (images, labels) in enumerate(_batches(20)):
        state, ours = step(state, {"image": images, "label": labels})
        images = torch.from_numpy(images).permute(0, 3, 1, 2)
        theirs = torch_step(number, {"image": images, "label": torch.from_numpy(labels)})
        largest = max(largest, float(ours["grad_norm"]))
        for metric in ("loss", "accuracy", "grad_norm", "learning_rate"):
            assert float(ours[metric]) == pytest.approx(float(theirs[metric]), rel=1e-11), metric
    # Softmax ignores the key bias: its gradient is zero in theory, rounding noise in practice, and Adam
    # divides that noise by its epsilon. What the noise can become in 20 steps:
    noise = 20 * recipe.learning_rate * np.finfo(float).eps * largest
    noise /= 1.0 - recipe.momentum if recipe.optimizer == "sgd" else recipe.adam_eps
    _assert_agree(vit_jax.to_arrays(merge(state.params)), vit_torch.to_arrays(model), noise)
    assert (state.ema is None) == (ema is None) == (recipe.ema is None)
    if state.ema is not None and ema is not None:
        averaged = {name: value.numpy() for name, value in ema.items()}
        _assert_agree(vit_jax.to_arrays(merge(state.ema)), averaged, noise)


def _assert_agree(ours, theirs, noise):
    D = CFG.hidden_size
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        other = theirs[name]
        if name.endswith("qkv.bias"):
            assert np.abs(value - other)[D : 2 * D].max() < noise
            value, other = (np.delete(x, np.s_[D : 2 * D]) for x in (value, other))
        assert error(value, other) < 1e-11, name


def _gradients_of_both(recipe, dtype):
    """Gradients by both twins, by common name in PyTorch's layout, of parameters that float32 holds."""
    arrays = {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0).astype(np.float32).astype(dtype)
        for leaf in leaves(vit_jax.weights.abstract_model(CFG))
    }
    images, labels = next(_batches(1))
    images = images.astype(np.float32).astype(dtype)
    params = get_params(vit_jax.from_arrays(CFG, arrays))
    batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels)}
    grads, _ = jax.jit(make_gradients(CFG, recipe))(params, batch, jnp.int32(0))
    model = vit_torch.from_arrays(CFG, arrays)
    images = torch.from_numpy(images).permute(0, 3, 1, 2)
    make_torch_gradients(model, recipe)(0, {"image": images, "label": torch.from_numpy(labels)})
    theirs = {leaf.name: leaf.variable.grad for leaf in vit_torch.leaves.leaves(model)}
    return vit_jax.to_arrays(make_merge(CFG)(grads)), theirs


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 3])
def test_bfloat16_gradients_are_float32_and_as_near_to_float64_as_the_other_twins(accumulate):
    recipe = RECIPE.replace(dtype="bfloat16", accumulate=accumulate, batch_size=6)
    ours, theirs = _gradients_of_both(recipe, np.float32)
    with jax.enable_x64(True):
        exact, _ = _gradients_of_both(recipe.replace(dtype="float64"), np.float64)
    grain = LIMITS["bfloat16"]["gradients"] * epsilon("bfloat16")
    distances = []
    for name, reference in exact.items():
        assert theirs[name].dtype == torch.float32
        assert ours[name].dtype == np.float32
        if name.endswith("qkv.bias"):  # of the keys: zero in theory
            continue
        pair = [error(actual[name], reference) for actual in (ours, theirs)]
        assert max(pair) < grain, name
        distances.append(pair)
    # bfloat16 was used at all, by both, and as well by one as by the other
    medians = np.median(distances, axis=0)
    assert np.all(medians > epsilon("bfloat16") / 8)
    assert medians.max() < RATIO * medians.min()


def test_bfloat16_computes_in_a_copy():
    """Parameters, moments and average stay float32 and take steps that bfloat16 could not hold."""
    recipe = RECIPE.replace(dtype="bfloat16", learning_rate=1e-5, final_learning_rate=0.0, ema=0.9)
    arrays = {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0).astype(np.float32)
        for leaf in leaves(vit_jax.weights.abstract_model(CFG))
    }
    model = vit_torch.from_arrays(CFG, arrays)
    optimizer, ema = make_optimizer(model, recipe), init_ema(recipe, model)
    step = make_torch_step(model, recipe, optimizer, STEPS_PER_EPOCH, ema)
    images, labels = next(_batches(1))
    batch = {"image": torch.from_numpy(images).permute(0, 3, 1, 2), "label": torch.from_numpy(labels)}
    step(0, batch)
    kernel = model.get_parameter("blocks.0.mlp.fc1.weight")
    moved = kernel.detach().numpy() - arrays["blocks.0.mlp.fc1.weight"]
    assert 0 < np.abs(moved).max() < 2 * recipe.learning_rate
    held = [*model.parameters(), *ema.values()]
    held += [state["exp_avg"] for state in optimizer.state.values()]
    assert {value.dtype for value in held} == {torch.float32}
    state = jax.eval_shape(lambda: init_state(CFG, recipe, STEPS_PER_EPOCH))
    batch = {"image": images.astype(np.float32), "label": labels}
    after, _ = jax.eval_shape(make_train_step(CFG, recipe, STEPS_PER_EPOCH), state, batch)
    floats = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert {leaf.dtype for leaf in floats} == {jnp.dtype("float32")}


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_evaluation_counts_only_what_the_mask_keeps(dtype, largest):
    recipe = RECIPE.replace(dtype=dtype)
    state = init_state(CFG, recipe, STEPS_PER_EPOCH)
    images, labels = next(_batches(1))
    mask = np.array([1, 1, 1, 1, 0, 0], np.float32)
    batch = {"image": images.astype(np.float32), "label": labels, "mask": mask}
    ours = jax.jit(make_eval_step(CFG, recipe))(state.params, batch)
    model = vit_torch.from_arrays(CFG, vit_jax.to_arrays(make_merge(CFG)(state.params)))
    tensors = {name: torch.from_numpy(value) for name, value in batch.items()}
    tensors["image"] = tensors["image"].permute(0, 3, 1, 2)
    theirs = make_torch_eval_step(model, recipe)(tensors)
    assert float(ours["count"]) == float(theirs["count"]) == 4
    assert float(ours["correct"]) == float(theirs["correct"])
    assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=largest)
    in_float32 = make_torch_eval_step(model, RECIPE.replace(dtype="float32"))(tensors)
    assert (float(theirs["loss"]) == float(in_float32["loss"])) == (dtype == "float32")


def test_what_decays_by_name():
    assert is_decayed(RECIPE, "blocks.0.attn.qkv.weight", 2)
    assert is_decayed(RECIPE, "patch_embed.proj.weight", 4)
    assert is_decayed(RECIPE, "blocks.0.attn.qkv_weight", 4)
    for name, ndim in [("pos_embed", 3), ("cls_token", 3), ("norm.weight", 1), ("head.bias", 1)]:
        assert not is_decayed(RECIPE, name, ndim)
        assert is_decayed(RECIPE.replace(decay="all"), name, ndim)
