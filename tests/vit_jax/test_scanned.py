"""A loop over the blocks computes what they do one by one, draws the same, and nobody sees it."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from parity.measure.redraw import redraw
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import Recipe
from vit_jax.functional import make_apply
from vit_jax.leaves import leaves
from vit_jax.scanned import UNROLLED, Loop, account, choose_loop, stretches
from vit_jax.step import init_state, make_gradients
from vit_jax.train.layout import make_layout
from vit_jax.train.mesh import make_mesh, parse_mesh
from vit_jax.weights import abstract_model

LOOPS = {
    "scan": Loop(scan=True),
    "scan, full": Loop(scan=True, remat="full"),
    "dots": Loop(remat="dots_saveable"),
    "scan, linear layers kept": Loop(scan=True, remat="dots_with_no_batch_dims_saveable"),
}
MIXED_ROPE = {**VARIANTS["rope_mixed"], **VARIANTS["dropout"]}
EVERY_RUN = {
    "scan, full": TINY.replace(**MIXED_ROPE),
    "scan": variant("differential").replace(stochastic_depth=0.3),
}


def gradients(cfg, loop):
    """Logits of a training pass, and the gradients of a sum of them."""
    params = {
        leaf.name: jnp.asarray(
            leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0)), jnp.float64
        )
        for leaf in leaves(abstract_model(cfg))
    }
    images = np.random.default_rng(0).standard_normal((3, *cfg.image_size, cfg.in_channels))
    apply = make_apply(cfg, loop=loop)

    def weighted(params):
        logits = apply(params, images, rngs=nnx.Rngs(dropout=jax.random.key(1))).logits
        return (logits * jnp.arange(logits.size).reshape(logits.shape)).sum(), logits

    grads, logits = jax.jit(jax.grad(weighted, has_aux=True))(params)
    return {"logits": logits, **grads}


def assert_same(cfg, loop):
    with jax.enable_x64(True):
        expected, actual = unrolled(cfg), gradients(cfg, loop)
    scale = max(np.linalg.norm(ref) for ref in expected.values())
    for name, ref in expected.items():
        assert np.linalg.norm(actual[name] - ref) <= 1e-12 * max(np.linalg.norm(ref), 1e-3 * scale), name


@cache
def unrolled(cfg):
    return gradients(cfg, UNROLLED)


@pytest.mark.parametrize("how", EVERY_RUN)
def test_the_same_logits_gradients_and_draws(how):
    assert_same(EVERY_RUN[how], LOOPS[how])


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", LOOPS)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_schema(name, how):
    assert_same(variant(name), LOOPS[how])


@pytest.mark.parametrize(
    ("changes", "expected", "sentence"),
    [
        ({}, [range(3)], "blocks 0 to 2 compiled as one each"),
        (
            {"stochastic_depth": 0.2},
            [range(1), range(1, 3)],
            "blocks 1 to 2 compiled as one each, 1 unr",
        ),
        (
            VARIANTS["grouped"],
            [range(1), range(1, 2), range(2, 3)],
            "all 3 blocks unrolled, for no neighbours are alike (attn.num_kv_heads)",
        ),
    ],
)
def test_what_is_a_loop_and_why_not(changes, expected, sentence):
    blocks = abstract_model(TINY.replace(**changes)).blocks
    assert stretches(blocks, Loop(scan=True)) == expected
    assert account(blocks, Loop(scan=True)).startswith(sentence)
    assert stretches(blocks, UNROLLED) == [range(i, i + 1) for i in range(3)]
    two = account(list(blocks)[:2], Loop(scan=True))
    assert two.startswith(sentence.replace("3", "2")) == sentence.startswith("all 3")


@pytest.mark.quick
def test_deep_models_are_scanned_but_on_a_cpu():
    assert choose_loop("auto", "none", depth=24, platform="tpu").scan
    assert not choose_loop("auto", "none", depth=24, platform="cpu").scan
    assert not choose_loop("auto", "none", depth=12, platform="tpu").scan
    assert choose_loop("on", "full", depth=1, platform="cpu") == Loop(True, "full")
    assert not choose_loop("off", "none", depth=48, platform="tpu").scan


def test_what_is_between_blocks_is_there_for_who_asks():
    """Attention, the blocks' outputs and features come from the blocks one by one."""
    apply = make_apply(TINY, loop=Loop(scan=True))
    params = jax.eval_shape(lambda: init_state(TINY, Recipe(), 1)).params
    images = jax.ShapeDtypeStruct((1, *TINY.image_size, TINY.in_channels), jnp.float32)
    asked = jax.eval_shape(partial(apply, return_attention=True, return_blocks=True), params, images)
    assert len(asked.attention) == len(asked.blocks) == TINY.depth
    assert jax.eval_shape(apply, params, images).blocks is None


def operations(jaxpr, name):
    """All operations of that name in a program and those inside it."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == name:
            yield eqn
        for value in jax.tree.leaves(list(eqn.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from operations(inner, name)


@pytest.mark.parametrize("remat", ["none", "full"])
def test_parameters_are_gathered_block_by_block_and_not_kept(remat):
    """Else each device would hold the whole model at once, which fsdp is there to avoid."""
    layout = make_layout(TINY, make_mesh(parse_mesh("fsdp=2", 2), jax.devices()[:2]))
    recipe = Recipe(batch_size=2)
    params = jax.eval_shape(lambda: init_state(TINY, recipe, 1)).params
    image = jax.ShapeDtypeStruct((2, *TINY.image_size, TINY.in_channels), jnp.float32)
    batch = {"image": image, "label": jax.ShapeDtypeStruct((2,), jnp.int32)}
    step = make_gradients(TINY, recipe, gather=layout.gather, loop=Loop(scan=True, remat=remat))
    traced = jax.make_jaxpr(step)(params, batch, jnp.int32(0)).jaxpr
    forward, backward = operations(traced, "scan")
    matrices = {
        (TINY.depth, *x.shape) for name, x in params.items() if "blocks.0" in name and x.ndim == 2
    }
    shapes = [out.aval.shape for out in forward.outvars]
    assert not matrices.intersection(shapes)
    for loop in (forward, backward):
        inside = loop.params["jaxpr"].jaxpr
        assert sum(1 for _ in operations(inside, "sharding_constraint")) >= len(matrices)
