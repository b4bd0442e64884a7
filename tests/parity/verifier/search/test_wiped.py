"""A branch that a trial wipes out differs no more, and nothing is mended by it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import parity

D, H = 32, 64
RNG = np.random.default_rng(0)


def norm(x, gain, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain + bias


def block(p, x, epsilon):
    """A branch with a batch norm at rest, and an MLP, each with its gain, as in XCiT."""
    y = (norm(x, p["norm1"], p["bias1"], epsilon) - p["mean"]) * p["scale"] + p["shift"]
    x = x + p["gamma1"] * (jax.nn.gelu(y, approximate=False) @ p["mix"])
    y = norm(x, p["norm2"], p["bias2"], 1e-6) @ p["fc1"] + p["bias_fc1"]
    return x + p["gamma2"] * (jax.nn.gelu(y, approximate=False) @ p["fc2"] + p["bias_fc2"])


def model(epsilon, blocks, x):
    for p in blocks:
        x = block(p, x, epsilon)
    return norm(x, 1.0, 0.0, 1e-6)


def fresh():
    """Parameters before training: gains of one, biases and means of zero."""

    def drawn(*shape):
        return (0.05 * RNG.normal(size=shape)).astype(np.float32)

    ones = dict.fromkeys(("norm1", "norm2", "scale", "gamma1", "gamma2"), np.ones(D, np.float32))
    zeros = dict.fromkeys(("bias1", "bias2", "mean", "shift", "bias_fc2"), np.zeros(D, np.float32))
    weights = {"mix": drawn(D, D), "fc1": drawn(D, H), "fc2": drawn(H, D)}
    return ones | zeros | weights | {"bias_fc1": np.zeros(H, np.float32)}


def test_a_factor_of_zeros_mends_nothing():
    given = [fresh(), fresh()], RNG.normal(size=(2, 5, D)).astype(np.float32)
    a, b = ((functools.partial(model, epsilon), given) for epsilon in (1e-6, 1e-5))
    found = parity.diff(a, b)
    assert found.verdict == "DIFFERENT"
    (place,) = found.places
    assert place.cause == "epsilon"
    assert "1e-05 where A has 1e-06" in found.to_text()


def test_a_factor_of_zeros_is_found_where_it_is_one():
    """LayerScale that begins at zero in A, and at one in B."""
    blocks, x = [fresh(), fresh()], RNG.normal(size=(2, 5, D)).astype(np.float32)
    of_a = [p | {"gamma1": np.zeros(D, np.float32)} for p in blocks]
    found = parity.diff(
        (functools.partial(model, 1e-6), (of_a, x)), (functools.partial(model, 1e-6), (blocks, x))
    )
    assert found.verdict == "DIFFERENT"
    assert "gamma1" in found.to_text()


def test_a_head_of_zeros_is_the_same_although_it_reads_other_values():
    x, first, second = (RNG.normal(size=shape) for shape in ((3, D), (D, D), (D, D)))

    def forward(layers):
        def run(p, x):
            for weight, bias in p["layers"]:
                x = x + jnp.tanh(x @ weight + bias)
            return x @ p["head"]

        held = [(each, np.zeros(D)) for each in (first, second)[:layers]]
        return run, ({"layers": held, "head": np.zeros((D, 5))}, x)

    assert parity.diff(forward(2), forward(2)).verdict == "EQUAL"
    compared = parity.diff(forward(2), forward(1))
    assert compared.verdict == "DIFFERENT"
    assert {place.cause for place in compared.places} == {"left out"}
