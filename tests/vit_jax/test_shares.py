"""Gradients over devices are added in the type that the recipe says: seen in the program."""

import re
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from parity.measure.redraw import redraw
from tests.support.share import rarely
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_jax.compiling import least_effort
from vit_jax.leaves import leaves
from vit_jax.scanned import UNROLLED, Loop
from vit_jax.step import make_gradients
from vit_jax.train.layout import make_layout
from vit_jax.train.mesh import BATCH_AXES, make_mesh, parse_mesh
from vit_jax.train.spread import make_program, make_shares
from vit_jax.train.topology import get_topology
from vit_jax.weights import abstract_model

CFG = ViTConfig(
    image_size=(14, 15),
    patch_size=(7, 5),
    hidden_size=16,
    depth=2,
    num_heads=2,
    mlp_dim=32,
    num_classes=8,
)
RECIPE = Recipe(batch_size=16)
SUM = re.compile(r"stablehlo\.(all_reduce|reduce_scatter).*?-> tensor<(?:\d+x)*(\w+)>", re.DOTALL)


def build(mesh, recipe, *, cfg=CFG, loop=UNROLLED, devices=None):
    """The gradients of a batch over a mesh, with what they are given."""
    devices = devices or jax.devices()
    layout = make_layout(cfg, make_mesh(parse_mesh(mesh, len(devices)), devices))
    shares = make_shares(layout, recipe)
    rng = np.random.default_rng(0)
    params = layout.pack(
        {
            leaf.name: leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0)).astype(
                np.float64 if recipe.dtype == "float64" else np.float32
            )
            for leaf in leaves(abstract_model(cfg))
        }
    )
    batch = {
        "image": rng.standard_normal((16, *cfg.image_size, 3), np.float32),
        "label": rng.integers(0, cfg.num_classes, 16, np.int32),
    }
    places, split = layout.of(params), NamedSharding(layout.mesh, P(BATCH_AXES))
    gradients = make_gradients(cfg, recipe, gather=layout.gather, shares=shares, loop=loop)
    step = jax.jit(gradients, in_shardings=(places, split, None), out_shardings=(places, None))
    return step, (params, batch, np.int32(0)), layout


def pmapped(recipe, cfg):
    """The same by pmap."""
    step, (params, batch, number), _ = build("data=8", RECIPE.replace(dtype=recipe.dtype), cfg=cfg)
    del step
    batch = {name: x.reshape(8, -1, *x.shape[1:]) for name, x in batch.items()}
    gradients = make_gradients(cfg, recipe, axis_name="i")
    output = jax.pmap(gradients, axis_name="i", in_axes=(None, 0, None))(params, batch, number)
    return jax.tree.map(lambda x: x[0], output)


@pytest.mark.parametrize(
    ("mesh", "loop", "reduced"),
    [
        ("data=8", UNROLLED, "float32"),
        ("data=8", UNROLLED, "bfloat16"),
        ("data=2,fsdp=4", UNROLLED, "float32"),
        ("data=2,fsdp=4", UNROLLED, "bfloat16"),
        ("fsdp=4,tensor=2", Loop(scan=True), "float32"),
    ],
)
@pytest.mark.parametrize("dtype", rarely(("float32", "bfloat16"), ("bfloat16",)))
def test_every_sum_of_gradients_is_in_the_type_of_the_recipe(mesh, loop, reduced, dtype):
    step, given, layout = build(mesh, RECIPE.replace(dtype=dtype, reduce_dtype=reduced), loop=loop)
    text = step.lower(*given).as_text()
    kinds = [kind for _, kind in SUM.findall(text)]
    assert kinds.count("f32") >= 2  # loss and accuracy are always added in their own
    of_gradients = kinds.count("bf16" if reduced == "bfloat16" else "f32")
    assert of_gradients >= len(layout.specs) - 12  # a loop's body, of two blocks, is there once
    assert kinds.count("bf16") == (of_gradients if reduced == "bfloat16" else 0)


@pytest.mark.parametrize("mesh", rarely(("data=8", "pmap"), ("data=8",)))
def test_sums_in_bfloat16_have_no_more_digits(mesh):
    """Which a CPU shows in the numbers: it adds in float32 what it then rounds."""
    for reduced in ("float32", "bfloat16"):
        recipe = RECIPE.replace(reduce_dtype=reduced)
        if mesh == "pmap":
            grads, _ = pmapped(recipe, CFG)
        else:
            step, given, _ = build(mesh, recipe)
            grads, _ = step(*given)
        sums = [8 * np.asarray(x) for x in grads.values()]  # the mean over eight devices is exact
        short = [np.array_equal(x, x.astype(jnp.bfloat16).astype(np.float32)) for x in sums]
        assert all(short) if reduced == "bfloat16" else not any(short)


def test_what_is_dropped_is_what_pmap_drops():
    cfg = CFG.replace(dropout_mlp_inner=0.5, stochastic_depth=0.5)
    with jax.enable_x64(True):
        recipe = RECIPE.replace(dtype="float64", reduce_dtype="float64")
        expected, means = pmapped(recipe, cfg)
        for mesh in ("data=8", "data=2,fsdp=4"):
            step, given, _ = build(mesh, recipe, cfg=cfg)
            actual, ours = step(*given)
            np.testing.assert_allclose(ours["loss"], means["loss"], rtol=1e-13)
            for name, ref in expected.items():
                if not name.endswith("qkv.bias"):  # that of the keys has no gradient but noise
                    error = np.linalg.norm(np.asarray(actual[name]) - ref)
                    assert error <= 1e-12 * np.linalg.norm(ref), (mesh, name)


@pytest.mark.parametrize("mesh", ["data=1", "data=1,tensor=1"])
def test_one_device_adds_nothing(mesh):
    layout = make_layout(CFG, make_mesh(parse_mesh(mesh, 1), jax.devices()[:1]))
    assert make_shares(layout, RECIPE.replace(reduce_dtype="bfloat16")) is None
    assert make_program(CFG, RECIPE.replace(reduce_dtype="bfloat16"), 1, devices=jax.devices()[:1])


def test_the_compiler_chooses_where_the_recipe_does_not():
    layout = make_layout(CFG, make_mesh(parse_mesh("data=8", 8), jax.devices()))
    assert make_shares(layout, RECIPE) is None


def test_what_the_compiler_for_cpus_cannot_is_refused():
    recipe = RECIPE.replace(reduce_dtype="bfloat16")
    with pytest.raises(
        ConfigError, match=r"with tensor = 2: XLA cannot compile that for CPUs; use reduce_dtype"
    ):
        make_program(CFG, recipe, 1, mesh="data=4,tensor=2")


def test_adapters_need_whole_weights():
    recipe, lora = RECIPE.replace(reduce_dtype="float32"), Lora(rank=2)
    with pytest.raises(ConfigError, match=r"adapters needs whole weights, .* fsdp = 4; use --mesh data"):
        make_program(CFG, recipe, 1, mesh="data=2,fsdp=4", lora=lora)


@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed; make tpu")
@pytest.mark.slow
def test_a_program_for_tpu_adds_in_that_type_and_gathers_what_it_computes_with():
    """Where the compiler might add before it widens, or gather before it rounds, and sends that."""
    devices, seen = get_topology("v5e:2x4").devices, {}
    for reduced in ("auto", "float32", "bfloat16"):
        recipe = RECIPE.replace(dtype="bfloat16", reduce_dtype=reduced)
        step, given, _ = build("data=2,fsdp=4", recipe, cfg=CFG.replace(depth=1), devices=devices)
        given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given)
        text = step.lower(*given).compile(least_effort()).as_text() or ""
        # small tables are gathered by adding them to zeros
        sums = re.findall(
            r"= (.*?) (?:all-reduce|reduce-scatter)(?:-start)?\((?!%dynamic-update-slice)", text
        )
        seen[reduced] = sum(each.count("bf16[") for each in sums)
        gathered = re.findall(r"= \(?(\w+)\[.* all-gather(?:-start)?\(", text)
        assert set(gathered) == {"bf16"}, reduced
    assert seen["auto"] > 0
    assert seen["bfloat16"] > 0
    assert seen["float32"] == 0
