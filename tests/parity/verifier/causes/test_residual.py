"""Branches of residual connections in another order, and layers that one side alone calls."""

from functools import partial

import numpy as np
import pytest
import torch
from jax import nn
from jax import numpy as jnp

from parity.verifier.compare import compare

WIDTH = 6
X = np.random.default_rng(1).normal(size=(2, 5, WIDTH))


def parameters():
    rng = np.random.default_rng(0)
    shapes = {"mix": (WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 9), "down": (9, WIDTH)}
    return {
        f"layer{i}": {name: rng.normal(size=shape) * 0.5 for name, shape in shapes.items()}
        for i in range(3)
    }


def attended(p, x):
    q = x @ p["mix"]
    return nn.softmax(q @ x.mT) @ x @ p["out"]


def widened(p, x):
    return nn.gelu(x @ p["up"], approximate=False) @ p["down"]


def model(parameters, x, *, layers=(0, 1, 2), first=()):
    """Layers of two branches; those in `first` have the other branch first."""
    for i in layers:
        p = parameters[f"layer{i}"]
        for branch in (widened, attended) if i in first else (attended, widened):
            x = x + branch(p, x)
    return jnp.tanh(x.mean(1))


class Reference(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        layers = {
            name: {n: torch.nn.Parameter(torch.from_numpy(v)) for n, v in p[name].items()} for name in p
        }
        self.layers = torch.nn.ModuleDict(
            {n: torch.nn.ParameterDict(each) for n, each in layers.items()}
        )

    def forward(self, x):
        for p in self.layers.values():
            x = x + torch.softmax(x @ p["mix"] @ x.mT, -1) @ x @ p["out"]
            x = x + torch.nn.functional.gelu(x @ p["up"]) @ p["down"]
        return torch.tanh(x.mean(1))


def against(**options):
    p = parameters()
    return compare((Reference(p), torch.from_numpy(X)), (partial(partial(model, **options), p), X))


@pytest.mark.parametrize("first", [(0, 1, 2), (1,), (2,)])
def test_branches_in_the_other_order_are_one_place(first):
    found = against(first=first)
    assert found.causes == ("branches exchanged",)
    assert found.places[0].times == len(first)


@pytest.mark.parametrize("layers", [(1, 2), (0, 2), (0, 1)])
def test_a_layer_that_is_not_called_has_its_name(layers):
    found = against(layers=layers)
    (missing,) = {0, 1, 2} - set(layers)
    assert [(place.cause, place.message) for place in found.places] == [
        ("layer left out", f"only A has layers.layer{missing}")
    ]


def test_two_layers_that_are_not_called_are_one_place():
    assert against(layers=(0,)).causes == ("layer left out",)


@pytest.mark.parametrize("layers", [(0, 0, 1, 2), (0, 1, 1, 2), (0, 1, 2, 2)])
def test_a_layer_that_is_called_twice_has_its_name(layers):
    found = against(layers=layers)
    (twice,) = {i for i in layers if layers.count(i) == 2}
    assert [(place.cause, place.message) for place in found.places] == [
        ("one layer too many", f"B computes layers.layer{twice} once more")
    ]


def test_terms_of_many_operations_that_are_left_out_are_no_factor():
    p = parameters()["layer0"]

    def long(x):
        for _ in range(12):
            x = jnp.tanh(x)
        return x

    def terms(p, x, *, all_of_them):
        h = jnp.tanh(x @ p["mix"])
        left_out = long(h @ p["out"]) + long(h.cumsum(1)) if all_of_them else 0
        return jnp.exp(h + left_out) @ p["mix"]

    a, b = (partial(partial(terms, all_of_them=each), p) for each in (True, False))
    found = compare((a, X), (b, X))
    assert found.causes == ("term left out",)
    assert "only A adds that of" in found.places[0].message
