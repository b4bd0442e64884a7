"""Bounded linear layers, whose bounds no training changes, and the pooling of squares of patches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import vit_jax
import vit_jax.bounded
import vit_jax.weights
import vit_torch
import vit_torch.bounded
import vit_torch.weights
from parity.measure.redraw import redraw
from parity.porting.models.files import load
from tests.support.tiny import TINY, error, variant
from vit_config import ConfigError, InputError, Preprocess, Recipe, write_weights
from vit_config.images.patches import Patches, collate
from vit_config.parameters import parameters
from vit_jax.functional import get_params, make_apply
from vit_jax.step import init_state
from vit_jax.step import make_train_step as make_jax_step
from vit_torch.optim import init_ema, make_optimizer
from vit_torch.step import make_train_step

CFG = TINY.replace(depth=1, linear_bounds=True)
SOFT = variant("soft_pooling").replace(dynamic_image_size=True, depth=1)
GRIDS = ((2, 4), (6, 2), (4, 4))


def arrays_of(cfg):
    return {name: redraw(name, each.kind, each.shape, 0) for name, each in parameters(cfg).items()}


def test_a_value_at_a_bound_keeps_its_gradient_and_one_beyond_it_has_none():
    x, low, high = np.array([-2.0, -1.0, 0.5, 3.0, 4.0]), -1.0, 3.0
    given = torch.tensor(x, requires_grad=True)
    theirs = vit_torch.bounded.clamp(given, torch.tensor(low), torch.tensor(high))
    theirs.sum().backward()
    ours = jnp.asarray(x)
    actual = vit_jax.bounded.clamp(ours, jnp.asarray(low), jnp.asarray(high))
    slope = jax.grad(lambda x: vit_jax.bounded.clamp(x, jnp.asarray(low), jnp.asarray(high)).sum())(ours)
    assert theirs.tolist() == actual.tolist() == [-1.0, -1.0, 0.5, 3.0, 3.0]
    assert given.grad is not None
    assert given.grad.tolist() == slope.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_no_training_changes_a_bound(x64):
    """Nor does an average whose first update copies: it would multiply infinite bounds by 0."""
    recipe = Recipe(
        dtype="float64", decay="all", weight_decay=0.3, learning_rate=0.1, ema=0.9, ema_warmup=True
    )
    arrays = arrays_of(CFG)
    arrays["blocks.0.mlp.fc2.bounds"][1::2] = np.inf
    stream = np.random.default_rng(0)
    images, labels = stream.standard_normal((2, *CFG.image_size, 3)), np.array([1, 5])

    params = get_params(vit_jax.from_arrays(CFG, arrays))
    state = init_state(CFG, recipe, 4)._replace(params=params, ema=params)
    batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels)}
    after, _ = jax.jit(make_jax_step(CFG, recipe, 4))(state, batch)

    model = vit_torch.from_arrays(CFG, arrays)
    ema = init_ema(recipe, model)
    assert ema is not None
    step = make_train_step(model, recipe, make_optimizer(model, recipe), 4, ema)
    step(0, {"image": torch.from_numpy(images).permute(0, 3, 1, 2), "label": torch.from_numpy(labels)})
    for name, value in model.named_parameters():
        stays = name.endswith("bounds")
        assert np.array_equal(value.detach().numpy(), arrays[name]) == stays, name
        assert np.array_equal(after.params[name], params[name]) == stays, name
        assert np.array_equal(after.ema[name], params[name]) == stays, name
        assert np.array_equal(ema[name].numpy(), arrays[name]) == stays, name


def test_squares_are_pooled_in_a_padded_batch_as_in_an_image():
    (ph, pw), k = SOFT.patch_size, 2
    stream = np.random.default_rng(0)
    images = [stream.standard_normal((rows * ph, columns * pw, 3)) for rows, columns in GRIDS]
    batch = collate(images, SOFT.patch_size, 20)
    batch.pixels[~batch.valid] = np.nan
    batch.coordinates[~batch.valid] = 77
    model = vit_torch.from_arrays(SOFT, arrays_of(SOFT))
    with torch.no_grad():
        together = model(Patches(*map(torch.from_numpy, batch)))
        assert together.logits.shape == (3, 5, SOFT.hidden_size)
        for row, image in enumerate(images):
            alone = model(torch.from_numpy(image.transpose(2, 0, 1))[None])
            count = alone.logits.shape[1]
            assert count == GRIDS[row][0] * GRIDS[row][1] // k**2
            assert error(together.logits[row, :count], alone.logits[0]) <= 1e-12
            tokens = model.forward_features(torch.from_numpy(image.transpose(2, 0, 1))[None])
            squares = tokens.reshape(1, GRIDS[row][0] // k, k, GRIDS[row][1] // k, k, -1).mean((2, 4))
            bare = squares.reshape(1, count, -1) * SOFT.hidden_size**0.5
            bare = (bare - model.pool.std_bias) * model.pool.std_scale
            assert error(alone.logits, bare) <= 1e-12
    with jax.enable_x64(True):
        twin = vit_jax.from_arrays(SOFT, arrays_of(SOFT))
        apply = jax.jit(lambda batch: make_apply(SOFT)(get_params(twin), batch).logits)
        assert error(apply(Patches(*map(jnp.asarray, batch))), together.logits) <= 1e-12


def test_what_squares_do_not_divide_is_refused():
    model = vit_torch.ViT(SOFT)
    with pytest.raises(InputError, match="3x4 patches, which pool_window = 2 does not divide"):
        model(torch.zeros(1, 3, 21, 20))
    batch = collate([np.zeros((14, 10, 3), np.float32)], SOFT.patch_size, 5)
    with pytest.raises(InputError, match="5 patches of each image, which squares of pool_window = 2"):
        model(Patches(*map(torch.from_numpy, batch)))
    with pytest.raises(InputError, match=r"24 tokens of the grid \(4, 6\) here, not 16"):
        model.forward_head(torch.zeros(1, 16, SOFT.hidden_size))
    with pytest.raises(ConfigError, match='pool = "soft" goes with num_classes = 0 only'):
        model.reset_classifier(7)
    model.reset_classifier(7, "avg")
    assert model.logits(torch.zeros(1, 3, 28, 30)).shape == (1, 7)


def test_an_image_within_a_budget_that_squares_do_not_divide_is_refused(tmp_path):
    write_weights(tmp_path / "soft.safetensors", SOFT, arrays_of(SOFT))
    stated = Preprocess(max_patches=12)
    loaded = load(tmp_path / "soft.safetensors", framework="torch", preprocess=stated)
    with pytest.raises(InputError, match="within max_patches it has 3x4 patches, which pool_window"):
        loaded.logits([np.zeros((21, 20, 3), np.uint8)])
