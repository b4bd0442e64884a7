"""One step over any mesh: the same numbers, and on each device exactly its share of the state."""

import math
import re
from contextlib import contextmanager
from functools import cache

import jax
import numpy as np
import pytest

from parity.measure.redraw import redraw
from tests.support.same_state import assert_same_state
from tests.support.share import rarely
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.augmentation import Mix
from vit_jax.leaves import leaves
from vit_jax.scanned import Loop
from vit_jax.train.checkpoint import Checkpoints, to_named
from vit_jax.train.layout import make_layout
from vit_jax.train.mesh import make_mesh, parse_mesh
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.spread import make_program
from vit_jax.weights import abstract_model
from vit_train.augmentation.mixing import mix_batch

CFG = ViTConfig(
    image_size=(14, 15),
    patch_size=(7, 5),
    hidden_size=20,
    depth=2,
    num_heads=2,
    mlp_dim=28,
    num_classes=5,
)
RECIPE = Recipe(
    dtype="float64",
    epochs=5,
    batch_size=16,
    learning_rate=1e-3,
    warmup_epochs=1,
    weight_decay=0.1,
    clip_norm=1.0,
    accumulate=2,
    label_smoothing=0.1,
    ema=0.9,
    mix=Mix(mixup=0.8),
)
STEPS, STEPS_PER_EPOCH = 20, 4
MESHES = ("data=8", "fsdp=-1", "tensor=2", "data=2,fsdp=2,tensor=2")
SCANNED = "data=2,fsdp=2,tensor=2 scanned"  # as a loop over the blocks, and all computed again
# gradients added in a type of the recipe's
ADDED = ("data=8 added", "data=2,fsdp=4 added", "data=2,fsdp=2,tensor=2 scanned added", "pmap added")


def test_there_are_eight_devices():
    assert jax.local_device_count() == 8, (
        "these tests need 8 devices; on a CPU set XLA_FLAGS=--xla_force_host_platform_device_count=8"
    )


@cache
def build(how):
    """The program of a mesh, of ``pmap``, or of one device."""
    mesh, *words = how.split()
    recipe = RECIPE.replace(reduce_dtype="float64") if "added" in words else RECIPE
    with jax.enable_x64(True):
        if mesh == "none":
            return make_program(CFG, recipe, STEPS_PER_EPOCH, devices=jax.devices()[:1])
        if mesh == "pmap":
            return make_pmap_program(CFG, recipe, STEPS_PER_EPOCH, devices=jax.devices()[:8])
        count = 2 if mesh == "tensor=2" else 8
        options = {"mesh": mesh, "devices": jax.devices()[:count]}
        options |= {"loop": Loop(scan=True, remat="full")} if "scanned" in words else {}
        return make_program(CFG, recipe, STEPS_PER_EPOCH, **options)


def start(program):
    """A state of re-drawn parameters, which hide no fault."""
    params = {
        leaf.name: leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0))
        for leaf in leaves(abstract_model(CFG))
    }
    ema = {name: value.copy() for name, value in params.items()}
    state = program.fetch(program.initialise())
    return program.place_state(state._replace(params=params, ema=ema))


def batch_of(step):
    rng = np.random.default_rng(step)
    images = rng.standard_normal((RECIPE.batch_size, *CFG.image_size, CFG.in_channels))
    labels = rng.integers(0, CFG.num_classes, RECIPE.batch_size, np.int32)
    images, shares = mix_batch(images, labels, RECIPE.mix, CFG.num_classes, rng)
    return {"image": images, "label": shares}


def train(program, state, first, last):
    for step in range(first, last):
        batch = program.place_batch(batch_of(step))
        with jax.transfer_guard("disallow"):
            state, metrics = program.train_step(state, batch)
    return state, program.fetch(metrics)


@pytest.fixture(scope="module")
def alone():
    """Twenty steps on one device: the state, by name."""
    with jax.enable_x64(True):
        program = build("none")
        state, metrics = train(program, start(program), 0, STEPS)
        return to_named(program.fetch(state)) | metrics


@contextmanager
def compilations():
    """The events of JAX's compiler."""
    events = []

    def note(event, seconds, **_):
        if event.startswith("/jax/core/compile"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.parametrize(
    "how",
    rarely(
        (*MESHES, SCANNED, *ADDED, "pmap"),
        ("data=2,fsdp=2,tensor=2 scanned added", "pmap"),
    ),
)
def test_any_layout_trains_as_one_device_does(alone, how):
    with jax.enable_x64(True):
        program = build(how)
        state, _ = train(program, start(program), 0, 1)
        with compilations() as again:
            state, metrics = train(program, state, 1, STEPS)
        assert not again
        assert_same_state(to_named(program.fetch(state)) | metrics, alone)


def test_a_run_goes_on_elsewhere(alone, tmp_path):
    """From a mesh of eight by way of a checkpoint to pmap, from there to one device."""
    with jax.enable_x64(True):
        state, metrics = None, {}
        with Checkpoints(tmp_path, run_id="one") as checkpoints:
            for how, last in (("data=2,fsdp=2,tensor=2", 7), ("pmap", 13), ("none", STEPS)):
                program = build(how)
                step, stored = checkpoints.restore_latest(program.abstract_state, warn=pytest.fail)
                state = start(program) if step is None else program.place_state(stored)
                if step is not None:
                    assert_same(program.fetch(state), stored)
                state, metrics = train(program, state, step or 0, last)
                checkpoints.save(last, program.fetch(state))
        assert_same_state(to_named(program.fetch(state)) | metrics, alone)


def assert_same(actual, expected):
    for name, ref in to_named(expected).items():
        np.testing.assert_array_equal(to_named(actual)[name], ref, err_msg=name)


# parameter, of whichever block -> its shape on one device of data=2, fsdp=2, tensor=2
D, M, C = CFG.hidden_size, CFG.mlp_dim, CFG.num_classes
ON_EACH = {
    "attn.qkv.weight": (D // 2, 3, 1, CFG.head_dim),
    "attn.qkv.bias": (3, 1, CFG.head_dim),
    "attn.proj.weight": (D // 2, D // 2),
    "attn.proj.bias": (D,),
    "mlp.fc1.weight": (D // 2, M // 2),
    "mlp.fc1.bias": (M // 2,),
    "mlp.fc2.weight": (M // 2, D // 2),
    "mlp.fc2.bias": (D,),
    **{f"{norm}.{gain}": (D,) for norm in ("norm1", "norm2", "norm") for gain in ("weight", "bias")},
    "patch_embed.proj.weight": (7, 5, 3, D // 2),
    "patch_embed.proj.bias": (D,),
    "cls_token": (1, 1, D // 2),
    "pos_embed": (1, 7, D // 2),
    "head.weight": (D // 2, C),
    "head.bias": (C,),
}


def test_each_device_holds_its_share_and_no_more():
    with jax.enable_x64(True):
        state = build("data=2,fsdp=2,tensor=2").initialise()
    adam = state.opt_state[1]
    expected = {name: ON_EACH[re.sub(r"^blocks\.\d+\.", "", name)] for name in state.params}
    for tree in (state.params, state.ema, adam.mu, adam.nu):
        assert tree.keys() == expected.keys()
        for name, shape in expected.items():
            assert {shard.data.shape for shard in tree[name].addressable_shards} == {shape}, name
    scalars = 3 * np.dtype(np.int32).itemsize  # the step, Adam's count and that of the learning rate
    for device in jax.devices():
        shards = [shard for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards]
        held = sum(shard.data.nbytes for shard in shards if shard.device == device)
        assert held == 4 * 8 * sum(map(math.prod, expected.values())) + scalars


def test_initial_values_do_not_depend_on_the_mesh():
    """They are drawn in float32, whose logarithm XLA rounds by how many a device computes at once."""
    with jax.enable_x64(True):
        first, second = (build(how) for how in ("none", "data=2,fsdp=2,tensor=2"))
        expected = to_named(first.fetch(first.initialise()))
        for name, values in to_named(second.fetch(second.initialise())).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("data=8", (8, 1, 1)),
        ("fsdp=-1", (1, 8, 1)),
        ("tensor=2, fsdp=-1", (1, 4, 2)),
        ("data=-1,fsdp=2,tensor=4", (1, 2, 4)),
    ],
)
def test_a_mesh_is_read(mesh, expected):
    assert parse_mesh(mesh, 8) == dict(zip(("data", "fsdp", "tensor"), expected, strict=True))


@pytest.mark.parametrize(
    ("mesh", "sentence"),
    [
        ("model=8", r"mesh model=8: no axis is called 'model'; the axes are data, fsdp, tensor"),
        ("data=2,data=4", "data is given twice"),
        ("data", "the size of data is ''; give a number"),
        ("data=0", "the size of data is '0'; give a number"),
        ("data=-1,fsdp=-1", "data and fsdp are both -1; only one"),
        ("data=16", "takes 16 devices, but there are 8; on a CPU, `XLA_FLAGS=--xla_force.*_count=16"),
        ("data=3,fsdp=-1", "3 does not divide the 8 devices"),
        ("data=4", "takes 4 of the 8 devices; use all"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(mesh, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_mesh(mesh, 8)


def test_a_mesh_must_fit_the_model_and_the_batch():
    def make(mesh, **changes):
        return make_program(CFG.replace(**changes), RECIPE, 1, mesh=mesh)

    with pytest.raises(ConfigError, match=r"tensor = 8: does not divide num_heads = 2; .* is 2"):
        make("tensor=8")
    with pytest.raises(ConfigError, match="neither heads nor hidden units of this model"):
        make("data=4,tensor=2", block="parallel")
    with pytest.raises(ConfigError, match="batch_size = 16 cannot be split evenly over 8 devices"):
        make_program(CFG, RECIPE.replace(accumulate=4), 1, mesh="data=4,fsdp=2")


def test_what_is_stored_is_split_as_on_the_devices_but_by_heads():
    """In their usual shape, heads lie beside each other in one axis, which stays whole."""
    layout = make_layout(CFG, make_mesh(parse_mesh("fsdp=2,tensor=2", 4), jax.devices()[:4]))
    names = [f"blocks.0.attn.qkv.{name}" for name in ("weight", "bias")]
    usual = {name: layout.usual[name] for name in names}
    stored = {name: layout.stored({name: 0})[name] for name in usual}
    assert {name: each.shard_shape(usual[name]) for name, each in stored.items()} == {
        "blocks.0.attn.qkv.weight": (10, 60), "blocks.0.attn.qkv.bias": (60,),
    }  # fmt: skip
    assert layout.of({"blocks.0.attn.qkv.weight": 0})["blocks.0.attn.qkv.weight"].shard_shape(
        layout.held["blocks.0.attn.qkv.weight"]
    ) == (10, 3, 1, 10)
