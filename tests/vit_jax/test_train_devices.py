"""The same training on one device and on eight, whichever way the step is spread over them."""

import jax
import numpy as np
import pytest

from parity.measure.redraw import redraw
from tests.support.same_state import assert_same_state
from vit_config import ConfigError, Recipe, ViTConfig
from vit_jax.leaves import leaves
from vit_jax.train.checkpoint import to_named
from vit_jax.train.checks import check_batch_size
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.spread import make_program
from vit_jax.weights import abstract_model

CFG = ViTConfig(
    image_size=(21, 15),
    patch_size=(7, 5),
    hidden_size=40,
    depth=1,
    num_heads=5,
    mlp_dim=56,
    num_classes=11,
    layer_scale=0.1,
)
RECIPE = Recipe(
    dtype="float64",
    epochs=4,
    batch_size=16,
    learning_rate=1e-3,
    warmup_epochs=1,
    weight_decay=0.1,
    clip_norm=1.0,
    label_smoothing=0.1,
)
STEPS, STEPS_PER_EPOCH = 20, 5


def test_there_are_eight_devices():
    assert jax.local_device_count() == 8, (
        "these tests need 8 devices; on a CPU set XLA_FLAGS=--xla_force_host_platform_device_count=8"
    )


def train_on(num_devices, make=make_program, **how):
    """Twenty steps from re-drawn weights: the final state as named numpy arrays."""
    devices = jax.local_devices()
    assert len(devices) == 8
    with jax.enable_x64(True):
        program = make(CFG, RECIPE, STEPS_PER_EPOCH, devices=devices[:num_devices], **how)
        parts = leaves(abstract_model(CFG))
        params = {
            leaf.name: leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0)) for leaf in parts
        }
        state = program.fetch(program.initialise())
        assert state.params.keys() == params.keys()
        state = program.place_state(state._replace(params=params))
        rng = np.random.default_rng(0)
        for _ in range(STEPS):
            images = rng.standard_normal((RECIPE.batch_size, *CFG.image_size, CFG.in_channels))
            labels = rng.integers(0, CFG.num_classes, RECIPE.batch_size, np.int32)
            batch = program.place_batch({"image": images, "label": labels})
            with jax.transfer_guard("disallow"):
                state, metrics = program.train_step(state, batch)
        assert set(program.fetch(metrics)) == {"loss", "accuracy", "grad_norm", "learning_rate"}
        batch = {"image": images, "label": labels, "mask": np.arange(RECIPE.batch_size) < 11}
        scores = program.fetch(program.eval_step(state.params, program.place_batch(batch)))
        assert scores["count"] == 11
        if how.get("mesh") == "fsdp=-1":
            kernel = state.params["blocks.0.mlp.fc1.weight"]
            assert kernel.addressable_shards[0].data.size == kernel.size // num_devices
        return to_named(program.fetch(state)) | {"evaluated_loss": scores["loss"]}


@pytest.fixture(scope="module")
def alone():
    return train_on(1)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="data", marks=pytest.mark.exhaustive),
        pytest.param({"mesh": "fsdp=-1"}, id="fsdp", marks=pytest.mark.slow),
        pytest.param(
            {"make": make_pmap_program}, id="pmap", marks=pytest.mark.exhaustive
        ),  # test_train_mesh.py has it,
    ],
)
def test_eight_devices_train_as_one_does(alone, how):
    assert_same_state(train_on(8, **how), alone)


def test_a_batch_must_divide_over_the_devices():
    with pytest.raises(ConfigError, match=r"batch_size = 10 .* over 4 devices; use 8 or 12"):
        check_batch_size(Recipe(batch_size=10), 4)
    with pytest.raises(ConfigError, match=r"batch_size = 3 .* over 8 devices; use 8$"):
        check_batch_size(Recipe(batch_size=3), 8)
    with pytest.raises(ConfigError, match="use 8 or 16"):
        make_program(CFG, RECIPE.replace(batch_size=12), 1, devices=jax.local_devices())
