"""The training step of every preset compiles for accelerators as far as that goes without one."""

import jax
import jax.numpy as jnp
import pytest

from vit_config import PRESETS, Recipe
from vit_jax.step import init_state, make_train_step

RECIPE = Recipe(batch_size=8, dtype="bfloat16", weight_decay=0.1, clip_norm=1.0)


QUICK = ("digits", "vit_base_patch16_224")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PRESETS],
)
def traced(request):
    cfg = PRESETS[request.param]
    state = jax.eval_shape(lambda: init_state(cfg, RECIPE, 10))
    batch = {
        "image": jax.ShapeDtypeStruct((8, *cfg.image_size, cfg.in_channels), jnp.float32),
        "label": jax.ShapeDtypeStruct((8,), jnp.int32),
    }
    return jax.jit(make_train_step(cfg, RECIPE, 10), donate_argnums=0).trace(state, batch)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_the_train_step_lowers(traced, platform):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.dot_general" in text
    assert "bf16" in text
