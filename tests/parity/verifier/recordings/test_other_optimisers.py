"""RMSprop, Adagrad, Lion, groups of parameters, frozen ones: right pairs are EQUAL, faults are named."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import parity

B, D, K, STEPS = 6, 5, 3, 4
X = np.random.default_rng(0).normal(size=(STEPS, B, D))
Y = np.random.default_rng(1).integers(0, K, (STEPS, B))
START = {
    "body.weight": np.random.default_rng(2).normal(0, 0.5, (D, D)),
    "body.bias": np.random.default_rng(3).normal(0, 0.5, D),
    "head.weight": np.random.default_rng(4).normal(0, 0.5, (K, D)),
    "head.bias": np.random.default_rng(5).normal(0, 0.5, K),
}


def model():
    made = nn.Sequential()
    made.body, made.act, made.head = nn.Linear(D, D), nn.Tanh(), nn.Linear(D, K)
    made.double().load_state_dict({name: torch.tensor(value) for name, value in START.items()})
    return made


def in_torch(path, optimizer, frozen=(), factor=(1.0,) * STEPS):
    net = model()
    for name, each in net.named_parameters():
        each.requires_grad = name not in frozen
    optimizer = optimizer(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=not np.isfinite(factor).all())
    with parity.record(path, net, optimizer=optimizer) as trace:
        for x, y, times in zip(X, Y, factor, strict=True):
            with trace.step(x=x, y=y):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y)) * times
                trace.log("loss", loss)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    return path


def loss_of(p, x, y, times, stop=()):
    p = {name: jax.lax.stop_gradient(value) if name in stop else value for name, value in p.items()}
    z = jnp.tanh(x @ p["body.weight"].T + p["body.bias"]) @ p["head.weight"].T + p["head.bias"]
    return optax.softmax_cross_entropy_with_integer_labels(z, y).mean() * times


def in_optax(path, tx, stop=(), factor=(1.0,) * STEPS, kept=True):
    p = {name: jnp.asarray(value) for name, value in START.items()}
    state = tx.init(p)
    with parity.record(path) as trace:
        for x, y, times in zip(X, Y, factor, strict=True):
            with trace.step(x=x, y=y):
                trace.log("parameters", p)
                loss, gradients = jax.value_and_grad(loss_of)(p, x, y, times, stop)
                trace.log("loss", loss)
                trace.log("gradients", gradients)
                updates, state = tx.update(gradients, state, p)
                p = optax.apply_updates(p, updates)
                if kept:
                    trace.log("moments", state)
                trace.log("updated", p)
    return path


def named(a, b):
    return {cause.name: cause for cause in parity.diff(a, b).causes}


def rms(**options):
    own = {"decay": 0.99, "eps": 1e-4, "eps_in_sqrt": False} | options
    return optax.chain(optax.scale_by_rms(**own), optax.trace(0.9), optax.scale(-1e-2))


@pytest.mark.usefixtures("x64")
def test_rmsprop(tmp_path):
    torchs = lambda net: torch.optim.RMSprop(net.parameters(), 1e-2, eps=1e-4, momentum=0.9)  # noqa: E731
    a = in_torch(tmp_path / "a.trace", torchs)
    assert parity.diff(a, in_optax(tmp_path / "b.trace", rms())).equal
    for name, options in (("epsilon-place", {"eps_in_sqrt": True}), ("beta2", {"decay": 0.9})):
        assert set(named(a, in_optax(tmp_path / f"{name}.trace", rms(**options)))) == {name}


@pytest.mark.usefixtures("x64")
def test_adagrad_that_begins_elsewhere(tmp_path):
    a = in_torch(tmp_path / "a.trace", lambda net: torch.optim.Adagrad(net.parameters(), 1e-2))
    chain = lambda start: optax.chain(  # noqa: E731
        optax.scale_by_rss(start, 1e-10), optax.scale(-1e-2)
    )
    assert set(named(a, in_optax(tmp_path / "a2.trace", chain(0.0)))) == {"epsilon-place"}  # optax's way
    both = named(a, in_optax(tmp_path / "b.trace", chain(0.1)))
    assert set(both) == {"moments-start", "epsilon-place"}


@pytest.mark.usefixtures("x64")
def test_lion(tmp_path):
    lion = lambda **options: optax.lion(1e-3, **({"weight_decay": 0.1} | options))  # noqa: E731
    a = in_optax(tmp_path / "a.trace", lion())
    assert set(named(a, in_optax(tmp_path / "d.trace", lion(weight_decay=0.01)))) == {"weight-decay"}
    assert set(named(a, in_optax(tmp_path / "e.trace", lion(b1=0.8)))) == {"beta1"}


def torch_groups(net):
    body = {"params": net.body.parameters(), "weight_decay": 0.1}
    return torch.optim.AdamW(
        [body, {"params": net.head.parameters(), "lr": 1e-1}], 1e-2, weight_decay=0.0
    )


def optax_groups(of_head):
    of = {"body": optax.adamw(1e-2, weight_decay=0.1), "head": optax.adamw(1e-1, weight_decay=0.0)}
    return optax.multi_transform(of | of_head, {name: name.partition(".")[0] for name in START})


@pytest.mark.usefixtures("x64")
def test_groups_of_which_one_side_does_not_tell_the_rates(tmp_path):
    a = in_torch(tmp_path / "a.trace", torch_groups)
    assert parity.diff(a, in_optax(tmp_path / "b.trace", optax_groups({}))).equal
    decayed = {"head": optax.adamw(1e-1, weight_decay=0.1)}
    cause = named(a, in_optax(tmp_path / "decayed.trace", optax_groups(decayed)))["decay-mask"]
    assert cause.where == ("head.bias", "head.weight")
    for rate in (1e-2, 3e-2):  # the rate of the other group, and one of nobody
        slow = {"head": optax.adamw(rate, weight_decay=0.0)}
        causes = named(a, in_optax(tmp_path / f"{rate}.trace", optax_groups(slow)))
        assert set(causes) == {"rate-groups"}
        assert causes["rate-groups"].where == ("head.bias", "head.weight")
        assert causes["rate-groups"].b == f"rates of leaves: head.bias {rate}, head.weight {rate}"


BODY = ("body.weight", "body.bias")


def adamw(net):
    return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-2, weight_decay=0.1)


@pytest.mark.usefixtures("x64")
def test_what_both_freeze(tmp_path):
    a = in_torch(tmp_path / "a.trace", adamw, frozen=BODY)
    mask = {name: name not in BODY for name in START}
    rest = {name: name in BODY for name in START}
    of_rest = optax.masked(optax.set_to_zero(), rest)
    masked = optax.chain(optax.masked(optax.adamw(1e-2, weight_decay=0.1), mask), of_rest)
    b = in_optax(tmp_path / "b.trace", masked)
    assert parity.diff(a, b).equal
    assert parity.diff(b, a).equal
    everything = optax.adamw(1e-2, weight_decay=0.1)
    cause = named(a, in_optax(tmp_path / "c.trace", everything, stop=BODY))["decay-mask"]
    assert set(cause.where) == set(BODY)


@pytest.mark.usefixtures("x64")
def test_an_overflow_that_one_side_leaves_out(tmp_path):
    factor = (1.0, np.inf, 1.0, 1.0)
    adam = lambda net: torch.optim.Adam(net.parameters(), 1e-2)  # noqa: E731
    a = in_torch(tmp_path / "a.trace", adam, factor=factor)
    b = in_optax(tmp_path / "b.trace", optax.apply_if_finite(optax.adam(1e-2), 3), factor=factor)
    assert parity.diff(a, b).equal
    c = in_optax(tmp_path / "c.trace", optax.adam(1e-2), factor=factor)
    assert set(named(a, c)) == {"skipped-update"}


def test_an_optimiser_of_other_parameters(tmp_path):
    sgd = lambda params: torch.optim.SGD(params, 0.1, momentum=0.9)  # noqa: E731
    a = in_torch(tmp_path / "a.trace", lambda net: sgd(net.parameters()))
    of_copy = in_torch(tmp_path / "b.trace", lambda net: sgd(copy.deepcopy(net).parameters()))
    cause = named(a, of_copy)["not-updated"]
    assert (set(cause.where), cause.a, cause.b) == (set(START), "moved: all", "moved: not these")


@pytest.mark.usefixtures("x64")
def test_moments_by_the_names_of_a_paper(tmp_path):
    zeros = {name: np.zeros_like(value) for name, value in START.items()}
    a = in_torch(tmp_path / "a.trace", lambda net: torch.optim.AdamW(net.parameters(), 1e-2))
    with parity.record(tmp_path / "b.trace") as trace:
        p, m, v = START, zeros, zeros
        for i, (x, y) in enumerate(zip(X, Y, strict=True), 1):
            with trace.step(x=x, y=y):
                trace.log("parameters", p)
                loss, g = jax.value_and_grad(loss_of)(jax.tree.map(jnp.asarray, p), x, y, 1.0)
                trace.log("loss", loss)
                trace.log("gradients", g)
                m = {n: 0.9 * m[n] + 0.1 * np.asarray(g[n]) for n in p}
                v = {n: 0.999 * v[n] + 0.001 * np.asarray(g[n]) ** 2 for n in p}
                by = {n: m[n] / (1 - 0.9**i) / (np.sqrt(v[n] / (1 - 0.999**i)) + 1e-8) for n in p}
                p = {n: p[n] - 1e-2 * by[n] - 1e-2 * p[n] for n in p}
                trace.log("moments", {"m": m, "v": v, "t": i})
                trace.log("updated", p)
    assert set(named(a, tmp_path / "b.trace")) == {"decay-times-rate"}


@pytest.mark.usefixtures("x64")
def test_another_norm_of_clipping(tmp_path):
    clipped = lambda most: optax.chain(optax.clip_by_global_norm(most), optax.sgd(0.1, 0.9))  # noqa: E731
    a, b = (in_optax(tmp_path / f"{most}.trace", clipped(most)) for most in (0.1, 0.01))
    cause = named(a, b)["clip-norm"]
    assert (cause.a, cause.b) == ("max norm 0.1", "max norm 0.01")
