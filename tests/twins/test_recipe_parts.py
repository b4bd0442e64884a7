"""A batch computed in parts has the gradient of the whole, in both twins and on several devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from parity.measure.redraw import redraw
from tests.support.refusals import one_line
from tests.support.share import rarely
from tests.support.tiny import TINY, error
from vit_config import ConfigError, InputError, Recipe, ViTOutput
from vit_jax import step
from vit_jax.functional import get_params
from vit_jax.leaves import leaves
from vit_jax.step import make_gradients
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.spread import make_program
from vit_torch.step import make_eval_step
from vit_torch.step import make_gradients as make_torch_gradients

CFG = TINY.replace(depth=1)
RECIPE = Recipe(dtype="float64", label_smoothing=0.1, batch_size=6)
D = CFG.hidden_size


def _arrays():
    return {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0)
        for leaf in leaves(vit_jax.weights.abstract_model(CFG))
    }


def _batch(size):
    stream = np.random.default_rng(0)
    images = stream.standard_normal((size, *CFG.image_size, CFG.in_channels))
    return images, stream.integers(0, CFG.num_classes, size)


def _by_jax(recipe, size):
    images, labels = _batch(size)
    params = get_params(vit_jax.from_arrays(CFG, _arrays()))
    batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels)}
    return jax.jit(make_gradients(CFG, recipe))(params, batch, jnp.int32(0))


def _by_torch(recipe, size):
    images, labels = _batch(size)
    model = vit_torch.from_arrays(CFG, _arrays())
    batch = {"image": torch.from_numpy(images).permute(0, 3, 1, 2), "label": torch.from_numpy(labels)}
    metrics = make_torch_gradients(model, recipe)(0, batch)
    return {leaf.name: leaf.variable.grad for leaf in vit_torch.leaves.leaves(model)}, metrics


@pytest.mark.parametrize(
    "run", [pytest.param(_by_jax, marks=pytest.mark.slow), _by_torch], ids=["jax", "torch"]
)
@pytest.mark.parametrize("parts", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", ["softmax", pytest.param("sigmoid", marks=pytest.mark.slow)])
def test_parts_add_up_to_the_whole(run, parts, loss, x64):
    recipe = RECIPE.replace(loss=loss)
    whole, metrics = run(recipe, 6)
    result, of_parts = run(recipe.replace(accumulate=parts), 6)
    for name in ("loss", "accuracy"):
        assert float(of_parts[name]) == pytest.approx(float(metrics[name]), rel=1e-13), name
    for name, value in result.items():
        keep = np.delete(np.arange(3 * D), np.s_[D : 2 * D]) if name.endswith("qkv.bias") else ...
        assert error(np.asarray(value)[keep], np.asarray(whole[name])[keep]) < 1e-12, name


@pytest.mark.parametrize("run", [_by_jax, _by_torch], ids=["jax", "torch"])
def test_a_batch_that_has_no_equal_parts_is_refused(run, x64):
    with pytest.raises(InputError) as caught:
        run(RECIPE.replace(accumulate=2), 5)
    one_line(caught.value, "5 images", "accumulate = 2")
    with pytest.raises(ConfigError) as caught:
        RECIPE.replace(accumulate=4)
    one_line(caught.value, "batch_size = 6", "accumulate = 4")


def noise(params, images, *, return_tokens, rngs=None):
    """In a model's place: logits of images (B, 1), with what dropout draws for them."""
    drawn = 0.0 if rngs is None else jax.random.normal(rngs.dropout(), (len(images), 3))
    return ViTOutput(images * params["w"] + drawn, pooled=None, prefix_tokens=None, patch_tokens=None)


def test_parts_have_neighbours_apart_and_draws_of_their_own(monkeypatch):
    """In step 5, part i of two has the images i, i + 2, ... and a key of the step and of i."""
    monkeypatch.setattr(step, "make_apply", lambda *_, **__: noise)
    recipe = Recipe(batch_size=6, accumulate=2, seed=4)
    batch = {"image": jnp.arange(6.0)[:, None], "label": jnp.array([0, 1, 2, 2, 1, 0])}
    params = {"w": jnp.array([1.0, -2.0, 0.5])}
    losses = []
    for part in range(2):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(4), 5), part)
        own = {name: x[part::2] for name, x in batch.items()}
        output = noise(params, own["image"], return_tokens=False, rngs=nnx.Rngs(dropout=key))
        losses.append(step.image_loss(recipe, output, own).mean())
    _, metrics = make_gradients(CFG, recipe)(params, batch, jnp.int32(5))
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-6)


def test_a_model_is_evaluated_by_the_loss_that_it_is_trained_by(monkeypatch):
    monkeypatch.setattr(step, "make_apply", lambda *_, **__: noise)
    images, labels = jnp.array([[0.3], [-2.0], [1.0]]), jnp.array([0, 2, 1])
    batch = {"image": images, "label": labels, "mask": jnp.array([True, True, False])}
    params = {"w": jnp.array([1.0, -2.0, 0.5])}
    sums = step.make_eval_step(CFG, Recipe(loss="sigmoid"))(params, batch)
    logits = np.asarray(images * params["w"], np.float64)
    signs = np.where(np.eye(3)[labels] == 1, 1.0, -1.0)
    expected = np.log1p(np.exp(-signs * logits)).sum(axis=1)[:2].sum()
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-6)
    assert (float(sums["correct"]), float(sums["count"])) == (1.0, 2.0)


def test_what_fills_a_batch_up_is_not_evaluated():
    images, labels = (torch.from_numpy(each) for each in _batch(3))
    model = vit_torch.from_arrays(CFG, _arrays())
    batch = {"image": images.permute(0, 3, 1, 2), "label": labels}
    evaluate = make_eval_step(model, RECIPE)
    sums = evaluate({**batch, "mask": torch.tensor([True, True, False])})
    alone = [
        evaluate({n: x[i : i + 1] for n, x in batch.items()} | {"mask": torch.ones(1)}) for i in (0, 1)
    ]
    for name, value in sums.items():
        assert float(value) == pytest.approx(sum(float(each[name]) for each in alone), rel=1e-12), name


def test_each_of_several_labels_must_be_right():
    images, _ = _batch(6)
    model = vit_torch.from_arrays(CFG, _arrays())
    batch = {"image": torch.from_numpy(images).permute(0, 3, 1, 2)}
    with torch.no_grad():
        logits = model(batch["image"]).logits
    highest = torch.nn.functional.one_hot(logits.argmax(dim=-1), CFG.num_classes)
    batch["label"] = torch.cat([(logits > 0)[:2], highest[2:]]).double()
    recipe = Recipe(dtype="float64", loss="sigmoid_mean", labels="several", batch_size=6)
    assert ((logits > 0).sum(dim=-1) > 1).all()
    assert float(make_torch_gradients(model, recipe)(0, batch)["accuracy"]) == pytest.approx(2 / 6)


@pytest.mark.slow
@pytest.mark.parametrize("how", rarely(("data=-1", "fsdp=-1", "pmap"), ("fsdp=-1",)))
def test_parts_on_eight_devices(how):
    """Two updates in two parts on eight devices are those of the whole batch on one."""
    recipe = RECIPE.replace(batch_size=16, ema=0.9)

    def run(recipe, count, make=make_program, **options):
        with jax.enable_x64(True):
            program = make(CFG, recipe, 4, devices=jax.local_devices()[:count], **options)
            params = get_params(vit_jax.from_arrays(CFG, _arrays()))
            state = program.fetch(program.initialise())._replace(
                params=jax.device_get(params), ema=jax.device_get(params)
            )
            state = program.place_state(state)
            images, labels = _batch(16)
            for _ in range(2):
                batch = program.place_batch({"image": images, "label": labels.astype(np.int32)})
                state, metrics = program.train_step(state, batch)
            state = program.fetch(state)
        return state, float(program.fetch(metrics)["loss"])

    options = {"make": make_pmap_program} if how == "pmap" else {"mesh": how}
    spread, loss = run(recipe.replace(accumulate=2), 8, **options)
    alone, expected = run(recipe, 1)
    assert loss == pytest.approx(expected, rel=1e-12)
    for actual, reference in [(spread.params, alone.params), (spread.ema, alone.ema)]:
        for name, value in actual.items():
            keep = np.delete(np.arange(3 * D), np.s_[D : 2 * D]) if name.endswith("qkv.bias") else ...
            assert error(value[keep], reference[name][keep]) < 1e-11, name
