"""One mistake that is made again and again: in time, for queries and for keys, in every layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.causes.several import MOST_OF_A_GROUP, _choices
from parity.verifier.locate import compare

RNG = np.random.default_rng(5)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.GRU(5, 7, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


def gru(fault):
    """(batch, time, width), each cell as `fault` says."""

    def step(p, h, x):
        of_x = x @ p["weight_ih_l0"].T + p["bias_ih_l0"]
        of_h = h @ p["weight_hh_l0"].T + p["bias_hh_l0"]
        (ir, iz, new), (hr, hz, old) = jnp.split(of_x, 3, -1), jnp.split(of_h, 3, -1)
        r, z = jax.nn.sigmoid(ir + hr), jax.nn.sigmoid(iz + hz)
        n = jnp.tanh(new + r * old) if fault != "relu" else jax.nn.relu(new + r * old)  # wrong
        if fault == "gate":
            return z * n + (1 - z) * h  # wrong
        return (1 - z) * n + z * h

    def function(p, x):
        def one(h, x):
            h = step(p, h, x)
            return h, h

        return jax.lax.scan(one, jnp.zeros((len(x), 7)), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    return function


@pytest.mark.parametrize(
    ("fault", "cause"), [("relu", "activation"), ("gate", "operands exchanged"), ("", "")]
)
def test_a_wrong_cell_is_one_place_in_every_step(fault, cause):
    # fed as the new state, the old one comes out as it went in; that says nothing of a repair
    model = Recurrent()
    weights = {name: p.detach().numpy() for name, p in model.cell.named_parameters()}
    x = RNG.normal(size=(3, 4, 5))
    comparison = compare((model, torch.tensor(x)), (gru(fault), (weights, x)))
    assert comparison.verdict == ("DIFFERENT" if fault else "EQUAL")
    assert [(place.cause, place.times) for place in comparison.places] == [(cause, 4)] * bool(fault)
    assert all("# wrong" in place.b.lines[0].text for place in comparison.places)


def test_layers_under_a_scan_that_runs_backwards_are_one_place():
    p = {"g": (4, 9), "b": (4, 9), "up": (4, 9, 13), "down": (4, 13, 9)}
    p = {name: RNG.normal(size=shape) / 3 for name, shape in p.items()}
    x = RNG.normal(size=(5, 9))

    def layer(x, p):
        y = jax.nn.standardize(x) * p["g"] + p["b"]
        return x + jax.nn.gelu(y @ p["up"]) @ p["down"], None

    def unrolled(p, x):
        for i in range(4):
            x, _ = layer(x, {name: each[i] for name, each in p.items()})
        return x

    def scanned(reverse):
        return lambda p, x: jax.lax.scan(layer, x, p, reverse=reverse)[0]  # wrong

    assert compare((unrolled, (p, x)), (scanned(False), (p, x))).verdict == "EQUAL"
    (place,) = compare((unrolled, (p, x)), (scanned(True), (p, x))).places
    assert (place.cause, place.kind) == ("reversed", "order")
    assert "# wrong" in place.b.lines[0].text


def turned(x, function=jnp.cos):
    """Queries or keys (tokens, heads, 4), turned by their places."""
    angles = jnp.arange(len(x))[:, None] / 10.0 ** jnp.arange(2)
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), 2)
    cos, sin = function(angles), jnp.sin(angles)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def scores(frequency):
    def function(p, x):
        for q, k in p:
            of_q = turned((x @ q).reshape(len(x), 3, 4)) if frequency is None else other(x @ q)
            of_k = turned((x @ k).reshape(len(x), 3, 4)) if frequency is None else other(x @ k)
            x = x + jax.nn.softmax(jnp.einsum("qhd,khd->qk", of_q, of_k) / 4) @ x
        return x

    def other(x):
        x = x.reshape(len(x), 3, 4)
        angles = jnp.arange(len(x))[:, None] / frequency ** jnp.arange(2)  # wrong
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return function, (RNG.normal(size=(2, 2, 12, 12)) / 4, RNG.normal(size=(6, 12)))


def test_queries_and_keys_that_are_both_turned_wrongly_are_one_place():
    # either alone repairs nothing that could be seen: their product reads both
    a, (weights, x) = scores(None)
    comparison = compare((a, (weights, x)), (scores(20.0)[0], (weights, x)))
    (place,) = comparison.places
    assert place.times == 4  # twice in each of two layers
    assert ["# wrong" in line.text for line in place.b.lines] == [True]
    assert compare((a, (weights, x)), (scores(10.0)[0], (weights, x))).verdict == "EQUAL"


def masked(size):
    """Scores (7, 7) and a mask of those further apart than `size`."""

    def function(p, x):
        i = jnp.arange(7)
        hidden = jnp.abs(i[:, None] - i) > size
        bias = jnp.where(hidden, -100.0, 0.0)
        y = x @ p["q"] @ (x @ p["k"]).T + bias
        return jax.nn.softmax(y) @ (x @ p["v"])

    return function, ({name: RNG.normal(size=(9, 9)) / 3 for name in "qkv"}, RNG.normal(size=(7, 9)))


def test_a_mask_that_hides_nothing_is_the_place_and_not_the_sum_with_it():
    a, given = masked(2)
    comparison = compare((a, given), (masked(8)[0], given))
    (place,) = comparison.places
    assert any(line.text.startswith("hidden") for line in place.b.lines), comparison.to_text()
    assert not any(line.text.startswith("return") for line in place.b.lines)


def table(scale, length, both):
    scale = scale[:2] if both else scale
    return jnp.tanh(scale.sum() * jnp.arange(length))


def positions(w, length, both):
    return table(w["scale"], length, both)[:, None] * w["kernel"]


def encoder_and_decoder(both):
    def function(w, x, y):
        x = jnp.tanh(x + positions(w, len(x), both))
        y = jnp.tanh(y + positions(w, len(y), False))
        return jax.nn.softmax(y @ w["query"] @ x.T) @ x

    w = {name: RNG.normal(size=size) for name, size in (("scale", 3), ("kernel", 6), ("query", (6, 6)))}
    return function, (w, RNG.normal(size=(5, 6)), RNG.normal(size=(4, 6)))


def test_of_a_call_within_a_call_the_line_that_asks_for_it():
    # `table` and `positions` compute A's values where they are called for `y`
    a, given = encoder_and_decoder(True)
    comparison = compare((a, given), (encoder_and_decoder(False)[0], given))
    (place,) = comparison.places
    assert place.b.lines[0].text == "x = jnp.tanh(x + positions(w, len(x), both))", comparison.to_text()


def test_a_constant_that_several_layers_put_in_the_place_of_their_values_is_one_place():
    shut = ~np.tri(5, dtype=bool)

    def layers(p, x, *, masked):
        for w in p:
            scores = x @ w @ x.mT
            scores = jnp.where(shut, -jnp.inf, scores) if masked else scores
            x = x + jax.nn.softmax(scores) @ x
        return x

    rng = np.random.default_rng(0)
    p, x = [rng.normal(size=(6, 6)) * 0.2 for _ in range(3)], rng.normal(size=(2, 5, 6))
    a, b = (lambda p, x, masked=each: layers(p, x, masked=masked) for each in (False, True))
    (place,) = compare((a, (p, x)), (b, (p, x))).places
    assert place.cause in ("mask", "causal mask")
    assert place.times == 3


def test_which_skips_are_tried_together():
    """All of a group, then any two of a few: no more than can be tried."""
    counts = [len([*_choices([([n], n) for n in range(size)])]) for size in range(8)]
    pairs = {size: size * (size - 1) // 2 for size in range(3, MOST_OF_A_GROUP + 1)}
    assert counts == [0, 0, 1, *(1 + pairs[size] for size in (3, 4, 5)), 1, 1]
