"""Layers of one's own in NNX: parameters are paired by value, also where they lie the other way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch import nn

import parity
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose

IN, WIDTH, CLASSES, RATE = 5, 7, 3, 1e-3
IMAGES = np.random.default_rng(0).normal(size=(4, IN))
LABELS = np.array([0, 1, 2, 1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(IN, WIDTH), nn.LayerNorm(WIDTH)
        self.square, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.out(torch.tanh(self.square(self.norm(self.one(x)))))


class Affine(nnx.Module):
    """Has the names of torch.nn.Linear, and the layout of Flax."""

    def __init__(self, state, name, turned=True):
        matrix = jnp.asarray(state[f"{name}.weight"].numpy())
        self.weight = nnx.Param(matrix.T if turned else matrix)
        self.bias = nnx.Param(jnp.asarray(state[f"{name}.bias"].numpy()))

    def __call__(self, x):
        return x @ self.weight[...] + self.bias[...]


class Centre(nnx.Module):
    def __init__(self, state, name):
        self.gain = nnx.Param(jnp.asarray(state[f"{name}.weight"].numpy()))
        self.shift = nnx.Param(jnp.asarray(state[f"{name}.bias"].numpy()))

    def __call__(self, x):
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.gain[...] + self.shift[...]


class Port(nnx.Module):
    def __init__(self, state, turned=True):
        self.one, self.norm = Affine(state, "one"), Centre(state, "norm")
        self.square, self.out = Affine(state, "square", turned), Affine(state, "out")

    def __call__(self, x):
        return self.out(jnp.tanh(self.square(self.norm(self.one(x)))))


@pytest.fixture
def recorded(tmp_path):
    """Record three steps of both; `options` are of the port."""

    def run(decay=0.01, **options):
        torch.manual_seed(0)
        model = Net().double()
        state = {name: each.clone() for name, each in model.state_dict().items()}
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
        with parity.record(tmp_path / "a.trace", model, optimizer=optimizer) as trace:
            for _ in range(3):
                x, y = torch.tensor(IMAGES), torch.tensor(LABELS)
                with trace.step(images=x, labels=y):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(x), y)
                    trace.log("loss", loss)
                    loss.backward()
                    optimizer.step()
        with jax.enable_x64(True):
            port = Port(state, **options)
            tx = nnx.Optimizer(port, optax.adamw(RATE, weight_decay=decay), wrt=nnx.Param)

            @nnx.jit
            def step(port, tx, x, y):
                def loss_of(port):
                    return optax.softmax_cross_entropy_with_integer_labels(port(x), y).mean()

                loss, gradients = nnx.value_and_grad(loss_of)(port)
                tx.update(port, gradients)
                return loss

            with parity.record(tmp_path / "b.trace", port, optimizer=tx) as trace:
                for _ in range(3):
                    x, y = jnp.asarray(IMAGES), jnp.asarray(LABELS)
                    with trace.step(images=x, labels=y):
                        trace.log("loss", step(port, tx, x, y))
        return [Recorded(tmp_path / f"{name}.trace") for name in "ab"]

    return run


def test_they_are_equal_and_all_is_compared(recorded):
    difference = compare_sides(*recorded())
    assert (difference.verdict, difference.left_out, difference.b_alone) == ("EQUAL", (), ())
    (updated,) = (each for each in difference.comparisons if (each.step, each.stage) == (0, "updated"))
    assert len(updated.judged) == 8


@pytest.mark.parametrize("reverse", [False, True])
def test_another_decay_of_theirs_is_named(recorded, reverse):
    sides = recorded(decay=0.1)
    diagnosis = diagnose(compare_sides(*(reversed(sides) if reverse else sides)))
    assert [cause.name for cause in diagnosis.causes] == ["weight-decay"]


def test_a_matrix_that_was_not_transposed_is_no_other_layout(recorded):
    """It has A's numbers as they are, and the forward pass differs."""
    first = compare_sides(*recorded(turned=False)).first
    assert first is not None
    assert (first.stage, first.where) == ("forward", "")
