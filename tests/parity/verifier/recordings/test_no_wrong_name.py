"""Loops in float32 whose difference no rule knows: they differ, and no cause is named by accident."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import parity
from parity.verifier.recordings.steps.updated import Told, _chosen

B, D, H, K, STEPS, RATE = 11, 5, 7, 5, 3, 1e-2


def start(seed):
    rng = np.random.default_rng(seed)
    shapes = {"body.weight": (H, D), "body.bias": (H,), "head.weight": (K, H), "head.bias": (K,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def batches(seed):
    rng = np.random.default_rng(1000 + seed)
    return [(rng.normal(size=(B, D)).astype(np.float32), rng.integers(0, K, B)) for _ in range(STEPS)]


def in_torch(path, seed, optimizer, loss=cross_entropy, change=None):
    """Record a loop that may `change` its gradients before the update."""
    net = nn.Sequential()
    net.body, net.act, net.head = nn.Linear(D, H), nn.Tanh(), nn.Linear(H, K)
    net.load_state_dict({name: torch.tensor(value) for name, value in start(seed).items()})
    optimizer = optimizer(net.parameters(), RATE)
    with parity.record(path, net, optimizer=optimizer) as trace:
        for x, y in batches(seed):
            with trace.step(x=x, y=y):
                optimizer.zero_grad()
                value = loss(net(torch.tensor(x)), torch.tensor(y))
                trace.log("loss", value)
                value.backward()
                if change:
                    change(net)
                optimizer.step()
    return path


@jax.jit
@jax.value_and_grad
def evaluate(p, x, y):
    z = jnp.tanh(x @ p["body.weight"].T + p["body.bias"]) @ p["head.weight"].T + p["head.bias"]
    return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()


def in_optax(path, seed, tx):
    p = {name: jnp.asarray(value) for name, value in start(seed).items()}
    state, update = tx.init(p), jax.jit(tx.update)
    with parity.record(path) as trace:
        for x, y in batches(seed):
            with trace.step(x=x, y=y):
                trace.log("parameters", p)
                loss, gradients = evaluate(p, x, y)
                trace.log("loss", loss)
                trace.log("gradients", gradients)
                updates, state = update(gradients, state, p)
                p = optax.apply_updates(p, updates)
                trace.log("moments", state)
                trace.log("learning rate", RATE)
                trace.log("updated", p)
    return path


def named(a, b):
    outcome = parity.diff(a, b)
    assert outcome.verdict == "DIFFERENT"
    return {cause.name for cause in outcome.causes}


adam = partial(torch.optim.AdamW, weight_decay=0.0)
sgd = torch.optim.SGD
seeds = pytest.mark.parametrize("seed", range(6))

LOSSES = {
    "a number added to each class": lambda z, y: cross_entropy(z + torch.linspace(-0.1, 0.1, K), y),
    "capped logits": lambda z, y: cross_entropy(5 * torch.tanh(z / 5), y),
    "a penalty of the partition": lambda z, y: (
        cross_entropy(z, y) + 1e-4 * (z.logsumexp(-1) ** 2).mean()
    ),
}


@seeds
@pytest.mark.parametrize("name", LOSSES)
def test_another_loss_is_no_smoothing(tmp_path, name, seed):
    a = in_torch(tmp_path / "a.trace", seed, adam)
    assert named(a, in_torch(tmp_path / "b.trace", seed, adam, LOSSES[name])) == set()


@seeds
@pytest.mark.parametrize("share", [0.1, 0.05])
def test_a_smoothing_is_named_still(tmp_path, share, seed):
    a = in_torch(tmp_path / "a.trace", seed, adam)
    smoothed = partial(cross_entropy, label_smoothing=share)
    assert named(a, in_torch(tmp_path / "b.trace", seed, adam, smoothed)) == {"label-smoothing"}


@seeds
def test_a_leaf_whose_gradient_is_multiplied_is_not_clipped(tmp_path, seed):
    halved = lambda net: net.head.weight.grad.mul_(0.5)  # noqa: E731
    a = in_torch(tmp_path / "a.trace", seed, adam)
    assert named(a, in_torch(tmp_path / "b.trace", seed, adam, change=halved)) == set()


@seeds
@pytest.mark.parametrize("before", [optax.scale(2.0), optax.normalize_by_update_norm()])
def test_a_multiple_of_the_gradient_is_no_other_beta(tmp_path, before, seed):
    """Twice the gradient makes the first moments that 0.8 and 0.996 make for 0.9 and 0.999."""
    a = in_torch(tmp_path / "a.trace", seed, adam)
    b = in_optax(tmp_path / "b.trace", seed, optax.chain(before, optax.adam(RATE)))
    assert named(a, b) == {"moments-gradient"}


@seeds
@pytest.mark.parametrize("method", [optax.lamb, optax.nadam, optax.radam])
def test_no_short_rate_is_named_by_chance(tmp_path, method, seed):
    """In float32 each leaf's rate is told to three or four digits: some are short, as a person's are."""
    a = in_torch(tmp_path / "a.trace", seed, adam)
    wrong = {"update-rate", "rate-groups", "bias-correction", "epsilon-place", "weight-decay"}
    assert not named(a, in_optax(tmp_path / "b.trace", seed, method(RATE))) & wrong


@pytest.mark.parametrize("tx", [optax.rprop(RATE), optax.lars(RATE, momentum=0.0)])
def test_another_method_moves_other_parameters_at_another_rate(tmp_path, tx):
    a = in_torch(tmp_path / "a.trace", 0, sgd)
    assert named(a, in_optax(tmp_path / "b.trace", 0, tx)) == set()


def test_a_decay_that_a_large_update_hides_is_not_said_to_be_missing(tmp_path):
    """Without its correction, the second moment's root is thirty times too small in the first step."""
    decayed = partial(torch.optim.AdamW, weight_decay=1e-3)
    a = in_torch(tmp_path / "a.trace", 0, decayed)
    uncorrected = optax.chain(_first_alone(), optax.add_decayed_weights(1e-3), optax.scale(-RATE))
    assert named(a, in_optax(tmp_path / "b.trace", 0, uncorrected)) == {"bias-correction"}


def _first_alone():
    """Adam whose second moment is not corrected."""
    adam = optax.scale_by_adam()

    def update(gradients, state, parameters=None):
        _, state = adam.update(gradients, state, parameters)
        first = 1 - 0.9**state.count
        moved = jax.tree.map(lambda m, v: m / first / (jnp.sqrt(v) + 1e-8), state.mu, state.nu)
        return moved, state

    return optax.GradientTransformation(adam.init, update)


def test_a_rate_is_a_short_number_or_the_recorded_one_times_one():
    """In float32, of which 2e-8 of a rate is not told, it was fitted to the shortest number there."""
    recorded, told = 0.01 / 3, Told(np.zeros(1), np.full(1, 2e-8), np.ones(1, dtype=bool))
    assert _chosen(0.0036667, told, [recorded]) == pytest.approx(1.1 * recorded, rel=1e-12)
    assert _chosen(0.02, told, [recorded]) == 0.02
    assert _chosen(1.4737 * recorded, told, [recorded]) is None  # NAdam's
