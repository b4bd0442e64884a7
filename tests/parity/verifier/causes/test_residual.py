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


def test_norms_of_queries_and_keys_that_have_changed_places_are_named():
    p = {
        name: np.random.default_rng(i).normal(size=WIDTH)
        for i, name in enumerate(["qg", "qb", "kg", "kb"])
    }

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = torch.nn.ParameterDict(
                {n: torch.nn.Parameter(torch.from_numpy(v)) for n, v in p.items()}
            )

        def forward(self, x):
            q = torch.nn.functional.layer_norm(x, (WIDTH,), self.p["qg"], self.p["qb"], 1e-6)
            k = torch.nn.functional.layer_norm(x.cumsum(1), (WIDTH,), self.p["kg"], self.p["kb"], 1e-6)
            return torch.softmax((q * WIDTH**-0.25) @ (k * WIDTH**-0.25).mT, -1)

    def scores(p, x, q, k):
        a, b = nn.standardize(x, epsilon=1e-6), nn.standardize(x.cumsum(1), epsilon=1e-6)
        a, b = a * p[f"{q}g"] + p[f"{q}b"], b * p[f"{k}g"] + p[f"{k}b"]
        return nn.softmax(a @ b.mT / WIDTH**0.5)

    given = Scores(), torch.from_numpy(X)
    assert compare(given, (partial(partial(scores, q="q", k="k"), p), X)).equal
    found = compare(given, (partial(partial(scores, q="k", k="q"), p), X))
    assert found.causes == ("operands exchanged",)


def test_a_stack_that_holds_another_parameter_says_which():
    p = parameters()
    names = sorted(p)
    stacked = {n: np.stack([p[layer][n] for layer in names]) for n in ("mix", "out", "up", "down")}
    stacked["mix"], stacked["out"] = stacked["out"], stacked["mix"]

    def rows(stacked, x):
        for i in range(3):
            each = {name: value[i] for name, value in stacked.items()}
            x = x + attended(each, x)
            x = x + widened(each, x)
        return jnp.tanh(x.mean(1))

    found = compare((Reference(p), torch.from_numpy(X)), (partial(rows, stacked), X))
    assert {place.kind for place in found.places} == {"parameter"}
