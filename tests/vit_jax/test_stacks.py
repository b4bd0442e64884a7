"""Blocks held together on the devices: the same updates, as many tensors at any depth, unseen."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.support.tiny import TINY
from vit_config import Recipe
from vit_jax.functional import get_params, make_apply
from vit_jax.scanned import Loop
from vit_jax.stacks import along_stack, is_stack, members, ndims, stack, unstack
from vit_jax.step import TrainState, init_state, make_train_step, make_update
from vit_jax.train.checkpoint import to_named
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.program import held_together
from vit_jax.train.spread import make_program
from vit_jax.weights import abstract_model

LOOP = Loop(scan=True)
DROPS = TINY.replace(depth=4, stochastic_depth=0.2)  # the first block stands alone
RECIPES = {
    "lamb": Recipe(optimizer="lamb", weight_decay=0.1, layer_decay=0.7, clip_norm=1.0, ema=0.9),
    "adamw": Recipe(weight_decay=0.1, decay="listed", decayed=("blocks.2.norm1.weight",), clip_norm=0.1),
    "sgd": Recipe(optimizer="sgd", momentum=0.9, nesterov=True, layer_decay=0.5, weight_decay=0.1),
}


def test_the_name_of_a_stack_says_what_is_in_it():
    assert members("blocks.1-3.attn.qkv.weight") == tuple(
        f"blocks.{i}.attn.qkv.weight" for i in (1, 2, 3)
    )
    assert members("head.weight") == ("head.weight",)
    assert not is_stack("blocks.1.attn.qkv.weight")
    arrays = {f"blocks.{i}.x": np.full((2, 5), i) for i in range(3)} | {"head": np.ones(7)}
    together = stack(arrays, ("blocks.0-2.x",))
    assert {name: array.shape for name, array in together.items()} == {
        "head": (7,),
        "blocks.0-2.x": (3, 2, 5),
    }
    assert ndims(together) == {name: array.ndim for name, array in arrays.items()}
    scales = {f"blocks.{i}.x": float(i) for i in range(3)}
    scaled = unstack(
        {name: x * along_stack(name, x, {"head": 2.0, **scales}) for name, x in together.items()}
    )
    for name, array in arrays.items():
        np.testing.assert_array_equal(scaled[name], array * {"head": 2.0, **scales}[name])


def test_what_stands_around_the_blocks_is_gathered_without_them():
    gathered = []

    def gather(params):
        gathered.append(set(params))
        return params

    params = get_params(abstract_model(TINY))
    images = jax.ShapeDtypeStruct((2, *TINY.image_size, 3), np.float32)
    jax.eval_shape(make_apply(TINY, loop=LOOP, gather=gather), params, images)
    assert gathered[0] == {name for name in params if not name.startswith("blocks.")}


@pytest.mark.parametrize("name", RECIPES)
def test_an_update_of_stacks_is_that_of_their_members(name):
    """Three updates with clipping, decay, moments, trust ratio and the share of each layer."""
    recipe = RECIPES[name].replace(dtype="float64", warmup_epochs=0)
    with jax.enable_x64(True):
        names = held_together(DROPS, recipe, LOOP, ())
        assert any(map(is_stack, names))
        state = init_state(DROPS, recipe, 4)
        rng = np.random.default_rng(0)
        params = {name: rng.standard_normal(x.shape) for name, x in state.params.items()}
        expected = state._replace(params=params)
        actual, update = stack(expected, names), jax.jit(make_update(recipe, 4))
        for _ in range(3):
            grads = {name: rng.standard_normal(x.shape) for name, x in params.items()}
            expected, actual = update(expected, grads), update(actual, stack(grads, names))
        assert len(actual.params) < len(expected.params)
        ours, theirs = to_named(unstack(actual)), to_named(expected)
    assert ours.keys() == theirs.keys()
    for each, ref in theirs.items():
        assert np.linalg.norm(ours[each] - ref) <= 1e-14 * np.linalg.norm(ref), each


def count_operations(depth):
    """Of the traced step, those inside others with them, and the tensors of the state."""
    cfg, recipe = TINY.replace(depth=depth), Recipe(batch_size=2, clip_norm=1.0, ema=0.9)
    names = held_together(cfg, recipe, LOOP, ())
    state = jax.eval_shape(lambda: stack(init_state(cfg, recipe, 4), names))
    image = jax.ShapeDtypeStruct((2, *cfg.image_size, cfg.in_channels), np.float32)
    batch = {"image": image, "label": jax.ShapeDtypeStruct((2,), np.int32)}
    step = make_train_step(cfg, recipe, 4, loop=LOOP)
    lowered = jax.jit(step).lower(state, batch)
    return lowered.as_text().count(" = "), len(jax.tree.leaves(state))


def test_a_step_does_not_grow_with_depth():
    assert count_operations(3) == count_operations(7)


def test_what_is_trained_apart_is_held_apart():
    recipe = Recipe()
    every = held_together(TINY, recipe, LOOP, ())
    assert held_together(TINY, recipe, Loop(), ()) == ()
    frozen = {"blocks.1.attn.qkv.weight", *members("blocks.0-2.norm1.bias")}
    assert set(every) - set(held_together(TINY, recipe, LOOP, frozen)) == {"blocks.0-2.attn.qkv.weight"}
    listed = recipe.replace(weight_decay=0.1, decay="listed", decayed=("blocks.2.norm1.weight",))
    assert set(every) - set(held_together(TINY, listed, LOOP, ())) == {"blocks.0-2.norm1.weight"}


@pytest.mark.parametrize("make", [partial(make_program, mesh="fsdp=-1"), make_pmap_program])
def test_the_host_sees_single_blocks(make):
    recipe = Recipe(batch_size=2)
    program = make(TINY, recipe, 4, devices=jax.devices()[:2], loop=LOOP)
    usual = jax.eval_shape(lambda: init_state(TINY, recipe, 4))
    assert program.abstract_state == usual
    rng = np.random.default_rng(0)
    state = jax.tree.map(lambda x: rng.integers(0, 9, x.shape).astype(x.dtype), usual)
    placed = program.place_state(TrainState(*state))
    assert any(map(is_stack, placed.params))
    for name, x in to_named(program.fetch(placed)).items():
        np.testing.assert_array_equal(x, to_named(state)[name], err_msg=name)
