"""Programs over a mesh against one device: equal, or a collective is named on its line."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh
from jax.sharding import PartitionSpec as P

from parity.cli import run
from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.jaxprs.mesh import Devices, hold_the_same
from parity.verifier.programs.sides import record
from parity.verifier.repro import write_repro
from tests.support import sharded_steps as steps
from vit_config import InputError

SOURCE = Path(steps.__file__).read_text().splitlines()


@pytest.fixture(scope="module")
def one_device():
    return record((steps.one_device, steps.arrays()), "A")


def against(one_device, step):
    return compare_programs(one_device, record((step, steps.arrays()), "B"))


def texts(place):
    return [SOURCE[line.line - 1].strip() for line in place.b.lines]


MEAN = "pmean over data: averaged over 4 devices, B's value is A's"
UPDATE = "return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradients)  # update"
DATA = {
    "missing": ("collective left out", MEAN, 3, UPDATE),
    "one leaf missing": ("collective left out", MEAN, 1, UPDATE),
    "doubled": (
        "collective twice",
        "psum over data of what its 4 devices already hold alike: 4 times A's value",
        3,
        'gradients = jax.lax.psum(jax.lax.pmean(gradients, "data"), "data")  # doubled',
    ),
    "psum for pmean": (
        "sum for mean",
        "psum over data where A has the mean of 4 devices",
        3,
        'gradients = jax.lax.psum(gradients, "data")',
    ),
}


@pytest.mark.parametrize("fault", DATA)
def test_a_collective_of_the_gradients_is_named_on_its_line(one_device, fault):
    cause, message, times, line = DATA[fault]
    comparison = against(one_device, steps.data_parallel(fault))
    assert comparison.verdict == "DIFFERENT"
    (place,) = comparison.places
    assert (place.cause, place.message, place.times) == (cause, message, times)
    assert line in texts(place)


@pytest.mark.parametrize(
    "mesh",
    [
        steps.abstract_mesh((4,), ("data",)),
        steps.abstract_mesh((8,), ("data",)),
        lambda: Mesh(np.array(jax.devices()).reshape(8), ("data",), axis_types=(AxisType.Auto,)),
        lambda: jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,)),
    ],
    ids=["abstract", "abstract of 8", "devices", "four devices"],
)
def test_a_step_over_a_mesh_is_equal_to_one_on_one_device(one_device, mesh):
    mesh = mesh if isinstance(mesh, AbstractMesh) else mesh()
    comparison = against(one_device, steps.data_parallel(mesh=mesh))
    assert comparison.verdict == "EQUAL"
    assert comparison.counts.outputs == 4


def test_what_is_recorded_is_what_devices_compute():
    """The stacks of `record` against JAX on eight emulated devices."""
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto, AxisType.Auto))

    def everything(x):
        i = jax.lax.axis_index(("a", "b"))
        values = {
            "gathered": jax.lax.all_gather(x, "a"),
            "tiled": jax.lax.all_gather(x, ("b", "a"), axis=1, tiled=True),
            "scattered": jax.lax.psum_scatter(jnp.arange(8.0).reshape(4, 2) * i, "a", tiled=True),
            "squeezed": jax.lax.psum_scatter(jnp.arange(8.0).reshape(4, 2) + i, "a"),
            "exchanged": jax.lax.all_to_all(jnp.arange(12.0).reshape(4, 3) * i, "a", 0, 1, tiled=True),
            "turned": jax.lax.all_to_all(jnp.arange(12.0).reshape(4, 3) * i, "a", 0, 1),
            "shifted": jax.lax.ppermute(x, "b", [(0, 1)]),
            "max": jax.lax.pmax(x, "b"),
            "min": jax.lax.pmin(x, ("a", "b")),
            "sum": jax.lax.psum((x, 2 * x), "a")[1],
            "scan": jax.lax.scan(lambda c, r: (c + jax.lax.psum(r, "a"), c * i), x[0], x)[1],
            "chosen": jax.lax.cond(jax.lax.psum(1, "b") > 1, jnp.sin, jnp.cos, x),
            "row": x[i % 2],
        }
        return {name: jnp.asarray(each, float)[None] for name, each in values.items()}

    mapped = jax.shard_map(
        everything, mesh=mesh, in_specs=P("a", "b"), out_specs=P(("a", "b")), check_vma=False
    )
    x = np.random.default_rng(0).normal(size=(8, 6))
    program = record((mapped, x), "B")
    with jax.enable_x64(True):
        expected = jax.jit(mapped)(x)
    assert len(program.outputs) == len(expected)
    for name, index in program.outputs:
        np.testing.assert_allclose(program.cache[index], expected[name], rtol=1e-12, atol=1e-12)


def test_pmap_is_over_a_mesh_too():
    x = np.random.default_rng(0).normal(size=(8, 3, 5))
    mapped = jax.pmap(lambda x: x / jax.lax.psum(x, "i"), axis_name="i")
    assert compare((lambda x: x / x.sum(0), x), (mapped, x)).verdict == "EQUAL"
    assert compare((lambda x: x / x.mean(0), x), (mapped, x)).verdict == "DIFFERENT"


@pytest.mark.parametrize("fault", ["", "sum for mean", "collective left out"])
def test_fully_sharded_parameters(fault):
    """Gathered before use; their gradients are summed and scattered."""

    def step(params, x, y):
        whole = {name: jax.lax.all_gather(each, "data", tiled=True) for name, each in params.items()}
        value, gradients = jax.value_and_grad(steps.loss)(whole, x, y)
        over = 1 if fault == "sum for mean" else 2
        gradients = {
            name: jax.lax.psum_scatter(each, "data", tiled=True) / over
            for name, each in gradients.items()
        }
        value = value if fault == "collective left out" else jax.lax.pmean(value, "data")
        return value, jax.tree.map(lambda p, g: p - steps.RATE * g, params, gradients)

    specs = (P("data"), P("data"), P("data"))
    mesh = steps.abstract_mesh((2,), ("data",))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(P(), P("data")), check_vma=False)
    params, x, y = steps.arrays()
    given = {**params, "up": params["up"][:4]}, x[:, :4], y
    comparison = compare((steps.one_device, given), (mapped, given))
    assert [place.cause for place in comparison.places] == ([fault] if fault else [])
    assert comparison.verdict == ("DIFFERENT" if fault else "EQUAL")


TENSOR = {
    "missing": ("collective left out", "psum over model: summed over 4 devices, B's value is A's",
                "partial = hidden @ params[\"down\"]  # a part of the sum"),
    "pmean for psum": ("mean for sum", "the mean over model where A has the sum of 4 devices",
                       'return jax.lax.pmean(x, "model")'),
}  # fmt: skip


@pytest.mark.parametrize("fault", TENSOR)
def test_a_collective_of_partial_sums(fault):
    params, x, _ = steps.arrays()
    one = steps.forward, (params, x)
    assert compare(one, (steps.tensor_parallel(), (params, x))).verdict == "EQUAL"
    (place,) = compare(one, (steps.tensor_parallel(fault), (params, x))).places
    cause, message, line = TENSOR[fault]
    assert (place.cause, place.message) == (cause, message)
    assert line in texts(place)


def test_a_fault_that_is_no_collective_is_found_on_the_mesh_too(one_device, tmp_path):
    def step(params, x, y):
        return steps.data_parallel()(params, x, y * 1.01)

    places = against(one_device, step).places
    assert {place.cause for place in places} == {"one scale too many"}
    assert all("* 1.01" in place.b.formula for place in places)
    _, x, _ = steps.arrays()
    mapped = jax.shard_map(
        lambda x: jnp.tanh(x) * 2,
        mesh=steps.abstract_mesh((4,), ("d",)),
        in_specs=P("d"),
        out_specs=P("d"),
    )
    (place,) = compare((lambda x: jnp.sin(x) * 2, x), (mapped, x)).places
    assert "relative difference 0.0" in write_repro(place, tmp_path / "place.py")


def test_what_devices_exchange_is_not_written_and_the_place_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sides.py").write_text(SIDES)
    assert run("diff", ["sides.py:one", "sides.py:mesh", "--repro", "r.py"], prog="parity diff") == 1
    said = capsys.readouterr()
    assert "sum for mean: psum over data where A has the mean of 4 devices" in said.out
    assert "note: no program was written: sharded_steps.py:" in said.err
    assert [each.name for each in tmp_path.iterdir() if each.suffix != ""] == ["sides.py"]


SIDES = """
from tests.support import sharded_steps as steps


def one():
    return steps.one_device, steps.arrays()


def mesh():
    return steps.data_parallel("psum for pmean"), steps.arrays()
"""


def test_what_cannot_be_recorded_is_said():
    mesh, x = steps.abstract_mesh((4, 2), ("a", "b")), np.ones((8, 6))

    def mapped(function, mesh=mesh, **options):
        return jax.shard_map(
            function, mesh=mesh, in_specs=P("a"), out_specs=P("a"), check_vma=False, **options
        )

    with pytest.raises(InputError, match="of a mesh of a, b, cannot be recorded; map over all axes"):
        record((mapped(lambda x: x, axis_names={"a"}), x), "B")
    with pytest.raises(InputError, match="devices take different branches"):
        record(
            (mapped(lambda x: jax.lax.cond(jax.lax.axis_index("a") > 1, jnp.sin, jnp.cos, x)), x), "B"
        )
    grouped = mapped(lambda x: jax.lax.psum(x, "a", axis_index_groups=[[0, 1], [2, 3]]))
    with pytest.raises(InputError, match="psum over groups of devices cannot be recorded"):
        record((grouped, x), "B")


def test_an_axis_of_one_device_may_be_left_out():
    mapped = jax.shard_map(
        jnp.sin,
        mesh=steps.abstract_mesh((4, 1), ("a", "b")),
        axis_names={"a"},
        in_specs=P("a"),
        out_specs=P("a"),
        check_vma=False,
    )
    x = np.linspace(0.0, 1.0, 8)
    assert compare((jnp.sin, x), (mapped, x)).verdict == "EQUAL"


def test_an_output_that_is_said_to_be_replicated_and_is_not_is_noted():
    mapped = jax.shard_map(
        lambda x: x.sum(),
        mesh=steps.abstract_mesh((4,), ("data",)),
        in_specs=P("data"),
        out_specs=P(),
        check_vma=False,
    )
    (note,) = record((mapped, np.arange(8.0)), "B").notes
    assert "differs among the devices along data; JAX takes that of the first" in note


@pytest.mark.parametrize("fill", [-np.inf, np.nan, -1e30, np.finfo(np.float32).min])
def test_what_fills_masks_hides_no_difference_between_devices(fill):
    devices = Devices({"data": 2, "model": 2})
    values = np.array([[1.0, 2.0, fill]] * 4)
    assert hold_the_same(devices, ("data",), values)
    values[2:, :2] += 1.0
    assert hold_the_same(devices, ("model",), values)
    assert not hold_the_same(devices, ("data",), values)
    assert not hold_the_same(devices, ("data",), np.array([[1.0, 2.0]] * 2 + [[1.0, fill]] * 2))
