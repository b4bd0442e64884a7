"""Recording Flax programs: everything once and whole, compiled or not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import parity
from parity.measure.traces import Site
from tests.support.tiny import TINY, error
from vit_config import InputError, Recipe
from vit_jax import ViT
from vit_jax.step import init_state, make_train_step

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


class Net(nnx.Module):
    """A layer called twice, one never called, and outputs in a dictionary."""

    def __init__(self, rngs):
        self.first = nnx.Linear(5, 7, rngs=rngs)
        self.twice = nnx.Linear(7, 7, rngs=rngs)
        self.never = nnx.Linear(7, 2, rngs=rngs)

    def __call__(self, x):
        y = self.first(x)
        y = jnp.sin(self.twice(jnp.sin(self.twice(y))))
        return {"sum": y.sum(axis=-1), "all": (y, x)}


def _loss(net, x):
    return (net(x)["sum"] ** 2).mean()


def _seen(trace, stage, step=0):
    return [(e.path, e.port, e.call) for e in trace.of(stage, step)]


FORWARD = [("", "out.sum", 0), ("", "out.all[0]", 0), ("", "out.all[1]", 0)]


def _plain(net, optimizer, x):
    loss, gradients = nnx.value_and_grad(_loss)(net, x)
    optimizer.update(net, gradients)
    return loss


def _split(net, optimizer, x):
    """Functional: the model that runs is merged inside the compiled function."""
    graph, state = nnx.split((net, optimizer))

    @jax.jit
    def step(state, x):
        net, optimizer = nnx.merge(graph, state)
        loss = _plain(net, optimizer, x)
        return loss, nnx.state((net, optimizer))

    loss, state = step(state, x)
    nnx.update((net, optimizer), state)
    return loss


def _train(step, path=None):
    net = Net(nnx.Rngs(3))
    optimizer = nnx.Optimizer(net, optax.adamw(1e-2), wrt=nnx.Param)
    if path is None:
        return [float(step(net, optimizer, jnp.asarray(X + i))) for i in range(2)], net
    losses = []
    with parity.record(path, net, optimizer=optimizer) as trace:
        for i in range(2):
            with trace.step(x=X + i):
                losses.append(step(net, optimizer, jnp.asarray(X + i)))
                trace.log("loss", losses[-1])
    return [float(loss) for loss in losses], net


@pytest.mark.parametrize("step", [_plain, nnx.jit(_plain), _split], ids=["eager", "nnx.jit", "jax.jit"])
def test_a_training_loop(tmp_path, step):
    expected, bare = _train(step)
    losses, net = _train(step, tmp_path / "a.trace")
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    trace = parity.Trace(tmp_path / "a.trace")
    for number in (0, 1):
        assert _seen(trace, "forward", number) == FORWARD
    assert trace.modules["never"].name == "Linear"
    assert trace.modules["(optimizer)"].name == "Optimizer"
    read = lambda *site: trace.read(Site(*site))  # noqa: E731
    weight = read(0, "parameters", "first.weight")
    assert weight.shape == (7, 5)
    np.testing.assert_array_equal(read(0, "forward", "", "out.all[1]"), X)
    np.testing.assert_array_equal(
        read(0, "updated", "twice.weight"), read(1, "parameters", "twice.weight")
    )
    np.testing.assert_array_equal(read(1, "updated", "twice.weight"), net.twice.kernel[...].T)
    np.testing.assert_allclose(net.twice.kernel[...], bare.twice.kernel[...], rtol=1e-6)
    gradient = read(0, "gradients", "first.weight")
    expected = nnx.grad(_loss)(Net(nnx.Rngs(3)), X).first.kernel[...]
    assert error(gradient, np.asarray(expected).T) < 1e-5
    assert error(read(0, "moments", "first.weight", "exp_avg"), 0.1 * gradient) < 1e-5
    assert int(read(1, "moments", "", "step")) == 2
    assert float(read(1, "loss", "")) == losses[1]


def test_several_runs_of_what_was_compiled_once_are_its_calls(tmp_path):
    net = Net(nnx.Rngs(3))
    run = nnx.jit(nnx.value_and_grad(_loss))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        for i in range(3):
            run(net, X + i)
    trace = parity.Trace(tmp_path / "a.trace")
    assert _seen(trace, "forward") == [(path, port, i) for i in range(3) for path, port, _ in FORWARD]
    for i in range(3):
        np.testing.assert_array_equal(trace.read(Site(0, "forward", "", "out.all[1]", i)), X + i)


def test_each_iteration_of_a_loop_over_micro_batches_is_a_call(tmp_path):
    net = nnx.Linear(5, 7, rngs=nnx.Rngs(0))
    graph, state = nnx.split(net)

    @jax.jit
    def total(state, xs):
        return jax.lax.scan(lambda c, x: (c + nnx.merge(graph, state)(x).sum(), None), 0.0, xs)[0]

    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        jax.grad(total)(state, jnp.stack([X, 2 * X]))
    trace = parity.Trace(tmp_path / "a.trace")
    for i in range(2):
        out = trace.read(Site(0, "forward", "", "out", i))
        assert error(out, net((i + 1) * X)) < 1e-6


class Layer(linen.Module):
    remat: bool = False

    @linen.compact
    def __call__(self, x, _):
        return jnp.tanh(linen.Dense(5, name="dense")(x)), None


class Stack(linen.Module):
    """Three layers in one loop, then one by itself."""

    remat: bool = False

    @linen.compact
    def __call__(self, x):
        x = linen.LayerNorm(name="norm")(x)
        layer = linen.remat(Layer) if self.remat else Layer
        scanned = linen.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = scanned(name="layers")(x, None)
        return linen.Dense(2, name="head")(x)


@pytest.mark.parametrize("remat", [False, True])
def test_a_loop_inside_of_a_model_runs_as_it_does_without(tmp_path, remat):
    model = Stack(remat)
    variables = model.init(jax.random.key(0), X)
    gradient = jax.jit(jax.grad(lambda v, x: jnp.square(model.apply(v, x)).sum()))
    plain = gradient(variables, X)
    with parity.record(tmp_path / "a.trace", model) as trace, trace.step():
        again = gradient(variables, X)
        trace.log("gradients", again)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), plain, again)
    trace = parity.Trace(tmp_path / "a.trace")
    assert _seen(trace, "forward") == [("", "out", 0)]
    assert trace.read(Site(0, "gradients", "head.weight")).shape == (2, 5)


class Dropping(linen.Module):
    @linen.compact
    def __call__(self, x, off):
        return linen.Dropout(0.5, name="drop")(linen.Dense(7, name="fc")(x), deterministic=off)


def test_the_mask_of_dropout_is_kept_while_it_is_on(tmp_path):
    model = Dropping()
    variables = model.init(jax.random.key(0), X, True)
    with parity.record(tmp_path / "a.trace", model) as trace:
        for off in (False, True):
            with trace.step():
                jax.jit(lambda v, x: model.apply(v, x, off, rngs={"dropout": jax.random.key(1)}))(  # noqa: B023
                    variables, X
                )
    trace = parity.Trace(tmp_path / "a.trace")
    assert sorted(_seen(trace, "forward", 0)) == [("", "out", 0), ("drop", "in", 0), ("drop", "out", 0)]
    assert _seen(trace, "forward", 1) == [("", "out", 0)]
    given, left = (trace.read(Site(0, "forward", "drop", port)) for port in ("in", "out"))
    assert 0 < (left == 0).sum() < left.size
    np.testing.assert_allclose(left[left != 0], 2 * given[left != 0], rtol=1e-6)


class Attending(linen.Module):
    @linen.compact
    def __call__(self, x):  # (B, H, W, C)
        x = linen.Conv(6, (2, 3), name="conv")(x)
        x = x.reshape(len(x), -1, 6)
        return linen.Dense(2, name="head")(linen.MultiHeadDotProductAttention(3, name="attn")(x, x))


def test_linen_in_pytorchs_names_and_layouts(tmp_path):
    model = Attending()
    images = np.random.default_rng(1).standard_normal((2, 5, 3, 4)).astype(np.float32)
    other = linen.Dense(3)
    variables = model.init(jax.random.key(0), images)
    with parity.record(tmp_path / "a.trace", model) as trace, trace.step(images=images):
        trace.log("parameters", variables)
        other.apply(other.init(jax.random.key(0), X), X)  # of no concern
        jax.jit(model.apply)(variables, images)
    trace = parity.Trace(tmp_path / "a.trace")
    assert {e.path: e.shape for e in trace.of("parameters")} == {
        "conv.weight": (6, 4, 2, 3),
        "conv.bias": (6,),
        **{f"attn.{name}.weight": (6, 6) for name in ("query", "key", "value", "out")},
        **{f"attn.{name}.bias": (6,) for name in ("query", "key", "value", "out")},
        "head.weight": (2, 6),
        "head.bias": (2,),
    }
    heads = np.asarray(variables["params"]["attn"]["value"]["kernel"])  # (in, heads, d)
    np.testing.assert_array_equal(
        trace.read(Site(0, "parameters", "attn.value.weight")), heads.reshape(6, 6).T
    )
    kinds = {path: facts.name for path, facts in trace.modules.items()}
    assert kinds["attn"] == "MultiHeadDotProductAttention"
    assert trace.modules["attn"].facts["num_heads"] == 3
    assert _seen(trace, "forward") == [("", "out", 0)]


def test_the_functional_loop_of_this_project(tmp_path):
    recipe = Recipe(epochs=1, learning_rate=1e-3, dtype="float32", weight_decay=0.0)
    cfg = TINY.replace(depth=1)
    model = ViT(cfg, rngs=nnx.Rngs(0))
    state = init_state(cfg, recipe, 2)
    rng = np.random.default_rng(0)
    batch = {"image": rng.standard_normal((2, 21, 15, 3), np.float32), "label": rng.integers(0, 11, 2)}
    step = jax.jit(make_train_step(cfg, recipe, 2))
    expected, metrics = step(state, batch)
    with parity.record(tmp_path / "a.trace", model) as trace, trace.step(**batch):
        trace.log("parameters", state.params)
        after, again = step(state, batch)
        trace.log("loss", again["loss"])
        trace.log("learning rate", again["learning_rate"])
        trace.log("moments", after.opt_state)
        trace.log("updated", after.params)
    assert float(metrics["loss"]) == pytest.approx(float(again["loss"]), rel=1e-6)
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace[Site(0, "parameters", "patch_embed.proj.weight")].shape == (30, 3, 7, 5)
    assert trace[Site(0, "moments", "blocks.0.attn.qkv.weight", "exp_avg_sq")].shape == (90, 30)
    name = "blocks.0.mlp.fc1.weight"
    np.testing.assert_array_equal(trace.read(Site(0, "updated", name)), np.asarray(after.params[name]).T)
    np.testing.assert_allclose(after.params[name], expected.params[name], atol=1e-5)


def test_a_batch_on_several_devices_is_seen_whole(tmp_path):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    net = Net(nnx.Rngs(3))
    whole = np.random.default_rng(0).standard_normal((16, 5)).astype(np.float32)
    x = jax.device_put(whole, NamedSharding(mesh, PartitionSpec("data")))
    graph, state = nnx.split(net)
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step(x=x):
        jax.jit(jax.grad(lambda state, x: _loss(nnx.merge(graph, state), x)))(state, x)
    trace = parity.Trace(tmp_path / "a.trace")
    assert _seen(trace, "forward") == FORWARD
    np.testing.assert_array_equal(trace.read(Site(0, "forward", "", "out.all[1]")), whole)
    assert error(trace.read(Site(0, "forward", "", "out.sum")), net(whole)["sum"]) < 1e-6


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_types(tmp_path, dtype):
    """Also where 64 bits are enabled for a part of the program alone."""
    with jax.enable_x64(dtype == "float64"):
        net = nnx.Linear(5, 7, rngs=nnx.Rngs(0), dtype=dtype, param_dtype=dtype)
        x = jnp.asarray(X, dtype)
        with parity.record(tmp_path / "a.trace", net) as trace, trace.step(x=x):
            y = nnx.jit(lambda net, x: net(x))(net, x)
            trace.log("batch", jnp.arange(3), path="label")
            trace.log("batch", np.array([True, False, True]), path="mask")
    trace = parity.Trace(tmp_path / "a.trace")
    out = trace.read(Site(0, "forward", "", "out"))
    assert out.dtype.name == dtype
    assert out.tobytes() == np.asarray(y).tobytes()
    assert trace[Site(0, "batch", "mask")].dtype == "bool"


def test_a_traced_value_cannot_be_logged(tmp_path):
    net = nnx.Linear(5, 7, rngs=nnx.Rngs(0))
    with (
        pytest.raises(InputError, match="loss: a value is a tracer; return it from"),
        parity.record(tmp_path / "a.trace", net) as trace,
        trace.step(),
    ):
        jax.jit(lambda x: trace.log("loss", x))(X)
    assert parity.Trace(tmp_path / "a.trace").index.ended_by.startswith("InputError: loss: a value")


class Boxed(nnx.Module):
    """Returns what no library can look into."""

    def __init__(self, rngs):
        self.inner = nnx.Linear(5, 7, rngs=rngs)

    def __call__(self, x):
        return Box(self.inner(x))


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, value):
        self.value = value

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)


def test_what_the_model_returns_need_not_be_understood(tmp_path):
    net = Boxed(nnx.Rngs(0))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        y = nnx.jit(lambda net, x: net(x))(net, X)
    assert y.value.shape == (3, 7)
    assert parity.Trace(tmp_path / "a.trace").modules["inner"].name == "Linear"
