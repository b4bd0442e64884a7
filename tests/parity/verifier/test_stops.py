"""Gradients that stop on one side alone: the line that stops them is the one place."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from jax import lax
from jax import numpy as jnp
from torch import nn
from torch.nn import functional as F

from parity.verifier.compare import compare

WIDTH, HEADS = 8, 2
SHAPES = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 12), "down": (12, WIDTH)}
X = np.random.default_rng(1).normal(size=(2, 5, WIDTH))


def parameters(*, fresh):
    """Draw parameters; fresh ones have gains of one and a scale of 0.1."""
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(size=shape) * 0.4 for name, shape in SHAPES.items()}
    for name in ("gain", "scale", "position"):
        shape = (1, 5, WIDTH) if name == "position" else (WIDTH,)
        drawn[name] = np.full(shape, 0.1) if fresh else rng.normal(size=shape)
    return drawn


def normed(x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def block(p, x, at=""):
    """A block of JAX in which the gradient stops at one point."""
    x = x + (lax.stop_gradient(p["position"]) if at == "position" else p["position"])
    q, k, v = jnp.split(normed(x) * p["gain"] @ p["qkv"], 3, -1)
    weights = jax.nn.softmax(q @ k.mT / WIDTH**0.5)
    if at == "weights":
        weights = lax.stop_gradient(weights)
    skip = x
    if at == "skip":
        skip = lax.stop_gradient(skip)
    x = skip + weights @ v @ p["out"]
    y = normed(x)
    if at == "mlp":
        y = lax.stop_gradient(y)
    y = jax.nn.gelu(y @ p["up"], approximate=False) @ p["down"]
    scale = p["scale"]
    if at == "scale":
        scale = lax.stop_gradient(scale)
    return x + y * scale


def jitted(p, x, at=""):
    """The same under transformations whose functions JAX traces once and keeps."""
    return jax.jit(jax.checkpoint(partial(block, at=at)))(p, x)


class Block(nn.Module):
    """The same block of torch."""

    def __init__(self, p, at=""):
        super().__init__()
        self.at = at
        self.p = nn.ParameterDict({name: nn.Parameter(torch.from_numpy(v)) for name, v in p.items()})

    def forward(self, x):
        p = self.p
        x = x + (p["position"].detach() if self.at == "position" else p["position"])
        q, k, v = (F.layer_norm(x, (WIDTH,), eps=1e-6) * p["gain"] @ p["qkv"]).chunk(3, -1)
        weights = torch.softmax(q @ k.mT / WIDTH**0.5, -1)
        if self.at == "weights":
            weights = weights.detach()
        x = (x.detach() if self.at == "skip" else x) + weights @ v @ p["out"]
        y = F.layer_norm(x, (WIDTH,), eps=1e-6)
        if self.at == "mlp":
            with torch.no_grad():
                y = y * 1
        return x + F.gelu(y @ p["up"]) @ p["down"] * (
            p["scale"].detach() if self.at == "scale" else p["scale"]
        )


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("at", ["position", "weights", "skip", "mlp", "scale"])
@pytest.mark.parametrize("function", [block, jitted])
def test_a_gradient_that_stops_in_jax_is_one_place_with_its_line(function, at, fresh):
    p = parameters(fresh=fresh)
    found = compare((Block(p), torch.from_numpy(X)), (partial(partial(function, at=at), p), X))
    assert found.causes == ("detached",)
    assert any("stop_gradient" in line.text for line in found.places[0].b.lines)


@pytest.mark.parametrize("at", ["position", "weights", "skip", "mlp", "scale"])
def test_a_gradient_that_stops_in_torch_is_one_place_with_its_line(at):
    p = parameters(fresh=False)
    found = compare((partial(block, p), X), (Block(p, at), torch.from_numpy(X)))
    assert found.causes == ("detached",)
    (line,) = found.places[0].b.lines
    assert ("no_grad" if at == "mlp" else "detach()") in line.text


@pytest.mark.parametrize("at", ["position", "weights", "skip", "mlp", "scale"])
def test_a_gradient_that_stops_in_a_alone_has_a_name_of_its_own(at):
    p = parameters(fresh=False)
    found = compare((Block(p, at), torch.from_numpy(X)), (partial(block, p), X))
    assert found.causes == ("not detached",)
    assert found.places[0].a.lines


def test_what_both_stop_is_no_difference_and_what_each_stops_is_two():
    p = parameters(fresh=False)
    given = Block(p, "weights"), torch.from_numpy(X)
    assert compare(given, (partial(partial(block, at="weights"), p), X)).equal
    found = compare(given, (partial(partial(block, at="scale"), p), X))
    assert sorted(found.causes) == ["detached", "not detached"]


def test_a_line_that_cannot_do_without_its_detach_is_tried_in_vain():
    class ByNumpy(Block):
        def forward(self, x):
            mean = float(x.detach().numpy().mean())
            return super().forward(x) * mean

    def by_numpy(p, x):
        return block(p, x) * lax.stop_gradient(x.mean())

    p = parameters(fresh=False)
    found = compare((partial(by_numpy, p), X), (ByNumpy(p, "scale"), torch.from_numpy(X)))
    assert found.causes == ("detached",)


def test_a_step_of_training_is_recorded_again_too():
    def step(p, x, at=""):
        gradients = jax.grad(lambda p: (block(p, x, at) ** 2).mean())(p)
        return {name: p[name] - 0.1 * each for name, each in gradients.items()}

    p = parameters(fresh=False)
    found = compare((partial(step, p), X), (partial(partial(step, at="skip"), p), X), gradients=True)
    assert found.causes == ("detached",)


class OfFlax(nnx.Module):
    def __init__(self, width, *, used):
        self.norm = nnx.LayerNorm(width, rngs=nnx.Rngs(0))
        self.head = nnx.Linear(width, 3, rngs=nnx.Rngs(1))
        self.used = used

    def __call__(self, x):
        x = normed(x)
        if self.used != "bias":
            x = x * self.norm.scale[...]
        return self.head(x + self.norm.bias[...] if self.used != "gain" else x)


@pytest.mark.parametrize(("used", "name", "label"), [
    ("gain", "bias left out", "norm.bias.value is never added; A reads norm.bias"),
    ("bias", "gain left out", "nothing is multiplied by norm.scale.value; A reads norm.weight"),
])  # fmt: skip
def test_a_fresh_parameter_that_nothing_reads_is_named(used, name, label):
    model = OfFlax(WIDTH, used=used)
    head = nn.Linear(WIDTH, 3)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(np.array(model.head.kernel[...]).T))
        head.bias.copy_(torch.from_numpy(np.array(model.head.bias[...])))
    reference = nn.Sequential()
    reference.add_module("norm", nn.LayerNorm(WIDTH, eps=1e-6))
    reference.add_module("head", head)
    found = compare((reference, torch.from_numpy(X)), (model, X))
    assert found.causes == (name,)
    assert found.places[0].message == label


def test_a_bias_that_is_stopped_in_a_scanned_and_recomputed_layer_is_found():
    p = {"w": np.stack([0.3 * parameters(fresh=False)["out"], np.eye(WIDTH)]), "b": X[:, 0]}

    def layers(p, x, *, stopped):
        @jax.checkpoint
        def layer(x, each):
            b = lax.stop_gradient(each["b"]) if stopped else each["b"]
            return jnp.tanh(x @ each["w"] + b), None

        return lax.scan(layer, x, p)[0]

    a, b = (partial(partial(layers, stopped=each), p) for each in (False, True))
    found = compare((a, X), (b, X))
    assert found.causes == ("detached",)
    assert "without it" in found.places[0].message


@pytest.mark.parametrize("rounded", [True, False])
def test_a_straight_through_estimator_is_not_taken_for_a_gradient_that_stops(rounded):
    def codes(p, x, *, straight):
        h = x @ p["out"]
        q = jnp.round(h) + h**2 if rounded else jnp.sin(h)
        return (h + lax.stop_gradient(q - h) if straight else q) @ p["out"]

    p = {"out": parameters(fresh=False)["out"]}
    a, b = (partial(partial(codes, straight=each), p) for each in (False, True))
    for first, second in ((a, b), (b, a)):
        found = compare((first, X), (second, X))
        assert found.verdict == "DIFFERENT"
        assert not {"detached", "not detached"} & set(found.causes)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.full((WIDTH,), 1e-5)) for _ in range(2))

    def forward(self, x):
        x = x + torch.tanh(x) * self.first
        return x + torch.sin(x) * self.second


def test_a_parameter_that_is_read_in_the_place_of_an_equal_one_is_named():
    def scaled(p, x):
        x = x + jnp.tanh(x) * p["b"]
        return x + jnp.sin(x) * p["b"]

    p = {name: np.full(WIDTH, 1e-5, np.float32) for name in "ab"}
    (place,) = compare((Scaled(), torch.from_numpy(X)), (partial(scaled, p), X)).places
    assert place.cause == "other value read"
    assert "b is read in the place of 0.a, too" in place.message
