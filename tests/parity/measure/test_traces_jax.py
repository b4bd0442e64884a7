"""Recording Flax programs: everything once, whole, in the order of the forward pass, compiled or not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import parity
from parity.measure.traces import Site, tap_jax
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


FORWARD = [
    ("", "in", 0),
    ("first", "in", 0),
    ("first", "out", 0),
    ("twice", "in", 0),
    ("twice", "out", 0),
    ("twice", "in", 1),
    ("twice", "out", 1),
    ("", "out.sum", 0),
    ("", "out.all[0]", 0),
    ("", "out.all[1]", 0),
]


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
        # the loss reaches one output alone, and the input is no parameter
        assert _seen(trace, "backward", number) == [
            each
            for each in FORWARD
            if each[1] not in ("out.all[0]", "out.all[1]") and each[0] + each[1] not in ("in", "firstin")
        ]
    assert trace.modules["never"].name == "Linear"
    assert trace.modules["(optimizer)"].name == "Optimizer"
    read = lambda *site: trace.read(Site(*site))  # noqa: E731
    weight = read(0, "parameters", "first.weight")
    assert weight.shape == (7, 5)
    assert (
        error(read(0, "forward", "first", "out"), X @ weight.T + read(0, "parameters", "first.bias"))
        < 1e-6
    )
    np.testing.assert_array_equal(
        read(0, "updated", "twice.weight"), read(1, "parameters", "twice.weight")
    )
    np.testing.assert_array_equal(read(1, "updated", "twice.weight"), net.twice.kernel[...].T)
    np.testing.assert_allclose(net.twice.kernel[...], bare.twice.kernel[...], rtol=1e-6)
    gradient = read(0, "gradients", "first.weight")
    assert error(gradient, read(0, "backward", "first", "out").T @ X) < 1e-5
    assert error(read(0, "moments", "first.weight", "exp_avg"), 0.1 * gradient) < 1e-5
    assert int(read(1, "moments", "", "step")) == 2
    assert float(read(1, "loss", "")) == losses[1]


def test_order_does_not_depend_on_when_values_arrive(tmp_path):
    """Several runs of what was compiled once are its calls, one after the other."""
    net = Net(nnx.Rngs(3))
    run = nnx.jit(nnx.value_and_grad(_loss))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        for i in range(3):
            run(net, X + i)
    trace = parity.Trace(tmp_path / "a.trace")
    expected = [
        (path, port, call + run * (2 if path == "twice" else 1))
        for run in range(3)
        for path, port, call in FORWARD
    ]
    assert _seen(trace, "forward") == expected
    for i in range(3):
        np.testing.assert_array_equal(trace.read(Site(0, "forward", "", "in", i)), X + i)
    # the gradient of each run belongs to the values of that run
    for i in range(3):
        sums = trace.read(Site(0, "forward", "", "out.sum", i))
        assert error(trace.read(Site(0, "backward", "", "out.sum", i)), 2 * sums / 3) < 1e-6


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
def test_each_iteration_of_a_loop_is_a_call_and_what_is_replayed_is_seen_once(tmp_path, remat):
    model = Stack(remat)
    variables = model.init(jax.random.key(0), X)
    gradient = jax.jit(jax.grad(lambda v, x: jnp.square(model.apply(v, x)).sum()))
    plain = gradient(variables, X)
    with parity.record(tmp_path / "a.trace", model) as trace, trace.step():
        again = gradient(variables, X)
        trace.log("gradients", again)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), plain, again)
    trace = parity.Trace(tmp_path / "a.trace")
    calls = [(e.path, e.call) for e in trace.of("forward") if e.port == "out" and e.path]
    loops = [("layers.dense", i) for i in range(3)]
    assert calls == [("norm", 0), *loops, ("head", 0)]
    kernels, biases = (np.asarray(variables["params"]["layers"]["dense"][k]) for k in ("kernel", "bias"))
    x = trace.read(Site(0, "forward", "norm", "out"))
    for i in range(3):
        np.testing.assert_allclose(trace.read(Site(0, "forward", "layers.dense", "in", i)), x, atol=1e-6)
        y = x @ kernels[i] + biases[i]
        out, into = (trace.read(Site(0, "backward", "layers.dense", p, i)) for p in ("out", "in"))
        assert error(into, out @ kernels[i].T) < 1e-5
        x = np.tanh(y)
    assert trace.read(Site(0, "gradients", "head.weight")).shape == (2, 5)


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
    read = lambda *site: trace.read(Site(0, *site))  # noqa: E731
    inside, outside = read("forward", "attn.value", "in"), read("forward", "attn.value", "out")
    by_torch = inside @ read("parameters", "attn.value.weight").T + read("parameters", "attn.value.bias")
    assert error(outside.reshape(by_torch.shape), by_torch) < 1e-6
    kinds = {path: facts.name for path, facts in trace.modules.items()}
    assert kinds["attn"] == "MultiHeadDotProductAttention"
    assert trace.modules["attn"].facts["num_heads"] == 3
    assert {e.path for e in trace.of("forward")} == set(kinds)


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
    assert Site(0, "backward", "blocks.0.mlp.fc2", "out") in trace
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
    np.testing.assert_array_equal(trace.read(Site(0, "forward", "first", "in")), whole)
    expected = whole @ np.asarray(net.first.kernel[...])
    assert error(trace.read(Site(0, "forward", "first", "out")), expected) < 1e-6


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


@pytest.mark.parametrize(
    ("small", "together", "forward", "backward", "gradients"),
    [(4096, 64, 1, 1, 1), (4096, 3, 3, 2, 2), (20, 64, 1 + 5, 1 + 5, 1 + 2)],
)
def test_small_values_leave_the_program_together(
    tmp_path, monkeypatch, small, together, forward, backward, gradients
):
    """A callback costs a tenth of a millisecond: eight arrays of the forward pass can share it."""
    sent = []
    callback = jax.debug.callback
    monkeypatch.setattr(jax.debug, "callback", lambda *args: (sent.append(args), callback(*args)))
    monkeypatch.setattr(tap_jax, "SMALL", small)
    monkeypatch.setattr(tap_jax, "TOGETHER", together)
    _train(nnx.jit(_plain), tmp_path / "a.trace")
    assert len(sent) == forward + backward + gradients
    trace = parity.Trace(tmp_path / "a.trace")
    weight, bias = (trace.read(Site(0, "parameters", f"first.{name}")) for name in ("weight", "bias"))
    out = trace.read(Site(0, "forward", "first", "out"))
    assert error(out, X @ weight.T + bias) < 1e-6
    assert (
        error(
            trace.read(Site(0, "gradients", "first.bias")),
            trace.read(Site(0, "backward", "first", "out")).sum(0),
        )
        < 1e-5
    )


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
    trace = parity.Trace(tmp_path / "a.trace")
    np.testing.assert_array_equal(trace.read(Site(0, "forward", "inner", "out")), y.value)


def test_a_part_that_is_called_by_itself_is_seen(tmp_path):
    net = Net(nnx.Rngs(3))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        net(X)
        y = net.first(jnp.asarray(2 * X))
    trace = parity.Trace(tmp_path / "a.trace")
    np.testing.assert_array_equal(trace.read(Site(0, "forward", "first", "out", 1)), y)


class Asking(nnx.Module):
    """Calls another model of its class, which is none of its parts."""

    def __init__(self, rngs, other=None):
        self.first = nnx.Linear(5, 7, rngs=rngs)
        self.other = None if other is None else lambda x: other(x)  # which hides what it calls

    def __call__(self, x):
        y = self.first(x)
        return y if self.other is None else y + self.other(x)


def test_what_is_seen_before_another_model_is_called_is_kept(tmp_path):
    net = Asking(nnx.Rngs(1), Asking(nnx.Rngs(0)))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        jax.jit(net)(X)
    trace = parity.Trace(tmp_path / "a.trace")
    values = [trace.read(e) for e in trace.of("forward") if (e.path, e.port) == ("first", "out")]
    assert any(error(each, net.first(X)) < 1e-6 for each in values)
