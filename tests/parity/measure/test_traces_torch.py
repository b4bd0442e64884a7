"""Recording PyTorch programs, as their authors write them; and the twins in loops of their users."""

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch import nn
from torch.utils.checkpoint import checkpoint

import parity
import vit_jax
import vit_torch
from parity.measure.redraw import redraw
from parity.measure.traces import Site
from tests.support.tiny import TINY, error
from vit_config import ConfigError

pytestmark = pytest.mark.quick

X = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32))


class Named(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Data:
    value: torch.Tensor
    name: str


class Parts(nn.Module):
    """Returns every kind of thing that holds tensors."""

    def forward(self, x, *, scale):
        from transformers.modeling_outputs import BaseModelOutput

        return {
            "named": Named(x * scale, x + 1),
            "data": Data(x * 2, "two"),
            "list": [x * 3, None, (x * 4,)],
            "output": BaseModelOutput(last_hidden_state=x * 5),
        }


class Net(nn.Module):
    def __init__(self, replay=False):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(5, 7)
        self.twice = nn.Linear(7, 7)
        self.act = nn.ReLU(inplace=True)
        self.frozen = nn.Linear(7, 3).requires_grad_(False)
        self.never = nn.LayerNorm(7, eps=1e-3)
        self.replay = replay

    def inner(self, x):
        return self.act(self.twice(self.act(self.twice(x))))

    def forward(self, x):
        x = self.first(x)
        x = checkpoint(self.inner, x, use_reentrant=False) if self.replay else self.inner(x)
        return self.frozen(x)


def _steps(net, optimizer, trace=None):
    """Two micro-batches a step, clipped."""
    for _ in range(2):
        if trace is None:
            _step(net, optimizer)
        else:
            with trace.step(x=X):
                trace.log("loss", _step(net, optimizer))


def _step(net, optimizer):
    optimizer.zero_grad()
    loss = sum((net(part) ** 2).mean() for part in X.chunk(2)[:1])
    loss.backward()
    second = (net(X.chunk(2)[1]) ** 2).mean()
    second.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1e-2)
    optimizer.step()
    return loss.detach() + second.detach()


def _adamw(net):
    return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)


@pytest.mark.parametrize("replay", [False, True], ids=["plain", "checkpoint"])
def test_a_training_loop(tmp_path, replay):
    bare, net = Net(replay), Net(replay)
    _steps(bare, _adamw(bare))
    optimizer = _adamw(net)
    with parity.record(tmp_path / "a.trace", net, optimizer=optimizer) as trace:
        _steps(net, optimizer, trace)
    for name, value in net.state_dict().items():
        assert torch.equal(value, bare.state_dict()[name]), name  # recording changes no bit
    assert not net._forward_hooks
    assert not optimizer._optimizer_step_pre_hooks
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace.steps == (0, 1)
    assert trace.modules["never"].facts["eps"] == 1e-3
    assert trace.modules["never"].kind == "torch.nn.modules.normalization.LayerNorm"
    assert trace.modules["(optimizer)"].facts["lr"] == 1e-2
    assert [(e.path, e.port, e.call) for e in trace.of("forward", 1)] == [("", "out", 0), ("", "out", 1)]
    read = lambda *site: trace.read(Site(0, *site))  # noqa: E731
    # the gradients of both micro-batches together, and clipped
    gradient, clipped = (read(stage, "first.weight") for stage in ("gradients", "clipped"))
    fresh = Net()
    sum((fresh(part) ** 2).mean() for part in X.chunk(2)).backward()
    assert error(gradient, fresh.first.weight.grad.numpy()) < 1e-6
    all_gradients = [read("gradients", e.path) for e in trace.of("gradients", 0)]
    norm = np.sqrt(sum((each**2).sum() for each in all_gradients))
    assert error(clipped, gradient * 1e-2 / (norm + 1e-6)) < 1e-5
    assert error(read("moments", "first.weight", "exp_avg"), 0.1 * clipped) < 1e-5
    assert not any(e.path.startswith("frozen") for e in trace.of("gradients"))
    assert Site(0, "parameters", "frozen.weight") in trace
    assert float(read("learning rate", "")) == 1e-2
    assert int(trace.read(Site(1, "moments", "", "step"))) == 2
    np.testing.assert_array_equal(
        trace.read(Site(1, "updated", "twice.bias")), net.twice.bias.detach().numpy()
    )
    assert float(trace.read(Site(1, "loss", ""))) > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_kind_of_output(tmp_path):
    net = Parts()
    x = X.clone().requires_grad_()
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        output = net(x, scale=torch.tensor(2.0))
        (output["data"].value.sum() + output["list"][2][0].sum()).backward()
    assert type(output["output"]).__name__ == "BaseModelOutput"
    assert output["output"].last_hidden_state is output["output"]["last_hidden_state"]
    assert isinstance(output["named"], Named)
    assert output["data"].name == "two"
    trace = parity.Trace(tmp_path / "a.trace")
    ports = [e.port for e in trace.of("forward")]
    assert ports == [
        "out.named.left",
        "out.named.right",
        "out.data.value",
        "out.list[0]",
        "out.list[2][0]",
        "out.output.last_hidden_state",
    ]
    assert [e.path for e in trace.of("batch")] == ["in", "in.scale"]  # as the step was given none


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_only_some_steps(tmp_path, mode):
    net = Net().eval()
    with parity.record(tmp_path / "a.trace", net, steps=[1, 3]) as trace, mode():
        for i in range(5):
            with trace.step():
                net(X + i)
                trace.log("loss", i)
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace.steps == (1, 3)
    assert trace.modules["first"].facts["training"] is False
    assert not list(trace.of("gradients"))
    np.testing.assert_array_equal(trace.read(Site(3, "batch", "in")), X + 3)
    np.testing.assert_array_equal(trace.read(Site(3, "forward", "", "out")), net(X + 3).detach())
    assert int(trace.read(Site(3, "loss", ""))) == 3


def test_samples_of_gradients_are_those_before_clipping(tmp_path):
    net = nn.Linear(5, 7)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with parity.record(tmp_path / "a.trace", net, optimizer=optimizer, keep=11) as trace, trace.step():
        net(X).sum().backward()
        whole = net.weight.grad.clone().numpy()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)  # in place
        optimizer.step()
    trace = parity.Trace(tmp_path / "a.trace")
    event = trace[Site(0, "gradients", "weight")]
    assert (event.shape, event.spacing) == ((7, 5), (3, 3))
    np.testing.assert_array_equal(trace.read(event), whole[::3, ::3])
    assert (np.abs(trace.read(Site(0, "clipped", "weight"))) < np.abs(whole[::3, ::3])).all()


def test_samples_of_large_tensors(tmp_path):
    net = nn.Linear(5, 7)
    x = X.clone()
    x[0, 0], x[1, 1] = float("nan"), -float("inf")
    with parity.record(tmp_path / "a.trace", net, keep=11) as trace, trace.step():
        net(x)
        trace.log("batch", X[0] * 1e30, path="small")
        trace.log("batch", np.full(12, 1e308), path="huge")
    trace = parity.Trace(tmp_path / "a.trace")
    site = Site(0, "batch", "in")
    assert (trace[site].shape, trace[site].spacing) == ((6, 5), (3, 1))
    np.testing.assert_array_equal(trace.read(site), x.numpy()[::3])
    assert trace[Site(0, "batch", "small")].spacing is None
    np.testing.assert_array_equal(trace.read(Site(0, "batch", "huge")), [1e308] * 4)
    with pytest.raises(ConfigError, match="keep = 0: must be at least 1"):
        parity.record(tmp_path / "b.trace", net, keep=0)
    assert not (tmp_path / "b.trace").exists()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_types(tmp_path, dtype):
    net = nn.Embedding(4, 3).to(getattr(torch, dtype))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        y = net(torch.tensor([3, 1]))
        y.sum().backward()
    trace = parity.Trace(tmp_path / "a.trace")
    out = trace.read(Site(0, "forward", "", "out"))
    assert (out.dtype.name, trace[Site(0, "batch", "in")].dtype) == (dtype, "int64")
    np.testing.assert_array_equal(out.astype(np.float64), y.detach().double().numpy())
    assert trace[Site(0, "gradients", "weight")].dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_types_that_numpy_lacks(tmp_path, dtype):
    for model in (None, nn.Linear(5, 2)):
        with parity.record(tmp_path / "a.trace", model, force=True) as trace, trace.step():
            trace.log("forward", {"x": X.to(dtype), "y": X[0].to(dtype)})
        x = parity.Trace(tmp_path / "a.trace").read(Site(0, "forward", "x"))
        np.testing.assert_array_equal(x.astype(np.float32), X.to(dtype).float().numpy())


def test_sparse_gradients(tmp_path):
    net = nn.Embedding(4, 3, sparse=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with parity.record(tmp_path / "a.trace", net, optimizer=optimizer) as trace, trace.step():
        net(torch.tensor([3, 1, 3])).sum().backward()
        optimizer.step()
    trace = parity.Trace(tmp_path / "a.trace")
    for stage in ("gradients", "clipped"):
        gradient = trace.read(Site(0, stage, "weight"))
        np.testing.assert_array_equal(gradient, np.array([0, 1, 0, 2])[:, None] * np.ones(3))


def test_inside_of_a_transform_nothing_is_seen(tmp_path):
    net = nn.Linear(5, 2)
    weights = dict(net.named_parameters())
    loss = lambda weights, x: torch.func.functional_call(net, weights, (x,)).sum()  # noqa: E731
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))
    with parity.record(tmp_path / "a.trace", net) as trace, trace.step():
        got = each(weights, X)
        net(X)
    torch.testing.assert_close(got["weight"][:, 0], X)
    assert [e.shape for e in parity.Trace(tmp_path / "a.trace").of("forward", 0)] == [(6, 2)]


@pytest.mark.parametrize("error", [RuntimeError("no more\nmemory"), KeyboardInterrupt()])
def test_what_was_recorded_until_a_crash_is_kept(tmp_path, error):
    net = Net()

    def crash(*_):
        raise error

    net.frozen.register_forward_pre_hook(crash)
    with (
        pytest.raises(type(error)),
        parity.record(tmp_path / "a.trace", net) as trace,
        trace.step(),
    ):
        net(X)
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace.index.ended_by.startswith(type(error).__name__)
    assert Site(0, "batch", "in") in trace
    assert not list(tmp_path.glob(".*"))


def test_a_step_that_failed_is_kept_and_the_next_one_is_its_own(tmp_path):
    net, given = nn.Linear(5, 2), [X, 2 * X, 3 * X]
    with parity.record(tmp_path / "a.trace", net) as trace:
        for i, x in enumerate(given):
            with contextlib.suppress(ValueError), trace.step(x=x):
                net(x).sum().backward()
                if i == 1:
                    raise ValueError("skipped, as a loop does with a bad batch")
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace.steps == (0, 1, 2)
    for i, x in enumerate(given):
        np.testing.assert_array_equal(trace.read(Site(i, "batch", "x")), x.numpy())
        assert Site(i, "forward", "", "out") in trace


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(5, 7), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.fc(x))


def test_the_mask_of_dropout_is_kept_while_it_is_on(tmp_path):
    torch.manual_seed(0)
    net = Dropping()
    with parity.record(tmp_path / "a.trace", net) as trace:
        for training in (True, False):
            with trace.step():
                net.train(training)(X)
    trace = parity.Trace(tmp_path / "a.trace")
    seen = [(e.step, e.path, e.port) for e in trace.of("forward")]
    assert seen == [(0, "drop", "in"), (0, "drop", "out"), (0, "", "out"), (1, "", "out")]
    given, left = (trace.read(Site(0, "forward", "drop", port)) for port in ("in", "out"))
    assert 0 < (left == 0).sum() < left.size
    np.testing.assert_allclose(left[left != 0], 2 * given[left != 0], rtol=1e-6)


class WithLoss(nn.Module):
    """Returns its loss, as models of transformers do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(5, 3)

    def forward(self, x, labels):
        logits = self.fc(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Wrapped:
    """As trainers wrap an optimiser."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


@pytest.mark.parametrize("clip", [False, True])
def test_what_a_scaler_multiplies_is_divided_again(tmp_path, clip):
    labels, grads = torch.arange(6) % 3, []
    for name, enabled in (("a", False), ("b", True)):
        net, scaler = WithLoss(), torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with parity.record(tmp_path / name, net, optimizer=Wrapped(optimizer)) as trace, trace.step():
            loss = net(X, labels=labels)["loss"]
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1e-2)
            scaler.step(optimizer)
            scaler.update()
        read = parity.Trace(tmp_path / name)
        grads.append([read.read(Site(0, each, "fc.weight")) for each in ("gradients", "clipped")])
        assert float(read.read(Site(0, "loss", ""))) == float(loss.detach())
        assert [e.path for e in read.of("batch")] == ["in", "in.labels"]
    np.testing.assert_array_equal(*(each[0] for each in grads))
    np.testing.assert_array_equal(*(each[1] for each in grads))
    assert torch.amp.GradScaler.unscale_.__qualname__ == "GradScaler.unscale_"


def _twins(arrays):
    model = vit_torch.from_arrays(TINY, arrays).requires_grad_(True)
    twin = vit_jax.from_arrays(TINY, arrays)
    yield model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
    yield twin, nnx.Optimizer(twin, optax.adamw(1e-3, weight_decay=0.02), wrt=nnx.Param)


@pytest.mark.slow
def test_the_twins_agree_event_by_event_in_float64(tmp_path, x64):
    abstract = vit_torch.weights.abstract_model(TINY)
    parts = vit_torch.leaves.leaves(abstract)
    arrays = {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0) for leaf in parts}
    (model, optimizer), (twin, twins_optimizer) = _twins(arrays)
    rng = np.random.default_rng(1)
    images, labels = rng.standard_normal((2, *TINY.image_size, 3)), rng.integers(0, 11, 2)

    x, y = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)
    with parity.record(tmp_path / "torch.trace", model, optimizer=optimizer) as trace:
        for _ in range(2):
            with trace.step(labels=y):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x).logits, y)
                trace.log("loss", loss)
                loss.backward()
                optimizer.step()

    @nnx.jit
    def step(twin, optimizer, images, labels):
        def loss_fn(twin):
            logits = twin(images).logits
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = nnx.value_and_grad(loss_fn)(twin)
        optimizer.update(twin, gradients)
        return loss

    with parity.record(tmp_path / "jax.trace", twin, optimizer=twins_optimizer) as trace:
        for _ in range(2):
            with trace.step(labels=labels):
                trace.log("loss", step(twin, twins_optimizer, jnp.asarray(images), jnp.asarray(labels)))
                trace.log("learning rate", 1e-3)

    a, b = parity.Trace(tmp_path / "torch.trace"), parity.Trace(tmp_path / "jax.trace")
    sites = {e.site for e in a.events if e.stage != "clipped"}
    assert sites == {e.site for e in b.events}
    assert len({site.stage for site in sites}) == 8
    for site in sites:
        left, right = a.read(site).astype(np.float64), b.read(site).astype(np.float64)
        if left.ndim == 4 and left.shape != right.shape:
            right = right.transpose(0, 3, 1, 2)  # feature maps are as each framework has them
        assert left.shape == right.shape, site
        tolerance = 1e-9 * max(np.abs(left).max(), 1e-3)
        # the gradient of the key's bias is zero in theory; Adam makes whole steps of its rounding errors
        if "attn.qkv" in site.path and site.stage in ("parameters", "forward", "updated"):
            tolerance = 5e-3
        assert np.abs(left - right).max() <= tolerance, site
