"""The training step of varied presets compiles for accelerators as far as that goes without one."""

import jax
import jax.numpy as jnp
import pytest

from vit_config import PRESETS, Recipe
from vit_config.presets.own import OWN
from vit_jax.train.spread import make_program

RECIPE = Recipe(batch_size=8, dtype="bfloat16", weight_decay=0.1, clip_norm=1.0)


QUICK = ("digits", "vit_base_patch16_224")
# rotary positions, relative ones, grouped keys, blocks in parallel, attention pooling
VARIED = (
    "eva02_tiny_patch14_224",
    "beit_base_patch16_224",
    "test_vit3",
    "vit_dpwee_patch16_reg1_gap_256",
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow, pytest.mark.exhaustive])
        for name in (*OWN, *QUICK[1:], *VARIED)
    ],
)
def traced(request):
    """The very step that a run compiles, with each device holding its share of the state."""
    cfg = PRESETS[request.param]
    program = make_program(cfg, RECIPE, 10, mesh="fsdp=-1")
    batch = {
        "image": jax.ShapeDtypeStruct((8, *cfg.image_size, cfg.in_channels), jnp.float32),
        "label": jax.ShapeDtypeStruct((8,), jnp.int32),
    }
    return program.train_step.trace(program.abstract_state, batch)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_the_train_step_lowers(traced, platform):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.dot_general" in text
    assert "bf16" in text
    assert 'sdy.mesh @mesh = <["data"=1, "fsdp"=8, "tensor"=1]>' in text
    assert '[{"fsdp"}, {}]' in text  # a matrix split over the devices
