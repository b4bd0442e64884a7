"""Weights before training make most of a model invisible: branches under a small LayerScale, biases of
zeros, norms of norms. A mistake there is placed and named all the same, and nothing else is blamed."""

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.verifier.locate import compare

WIDTH, TOKENS, DEPTH = 12, 5, 3
RNG = np.random.default_rng(8)
NAMES = ("qkv", "proj", "fc1", "fc2")
SHAPES = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 19), (19, WIDTH))
X = RNG.normal(size=(2, TOKENS, WIDTH))


def fresh():
    """Blocks as an initialiser leaves them."""
    return [
        {name: RNG.normal(size=shape) * 0.1 for name, shape in zip(NAMES, SHAPES, strict=True)}
        | {name + "_bias": np.zeros(shape[1]) for name, shape in zip(NAMES, SHAPES, strict=True)}
        | {"norm1": np.ones(WIDTH), "norm2": np.ones(WIDTH)}
        | {"norm1_bias": np.zeros(WIDTH), "norm2_bias": np.zeros(WIDTH)}
        | {"gamma1": np.full(WIDTH, 1e-7), "gamma2": np.full(WIDTH, 1e-7)}
        for _ in range(DEPTH)
    ]


BLOCKS = fresh()


def norm(x, gain, bias, epsilon=1e-6):
    y = x - x.mean(-1, keepdims=True)
    return y / jnp.sqrt((y**2).mean(-1, keepdims=True) + epsilon) * gain + bias


def attention(p, x, swapped=False):
    q, k, v = jnp.split(x @ p["qkv"] + p["qkv_bias"], 3, -1)
    scores = q @ k.mT / np.sqrt(WIDTH)
    shares = jnp.tanh(jax.nn.softmax(scores)) if swapped else jax.nn.softmax(jnp.tanh(scores))
    return shares @ v @ p["proj"] + p["proj_bias"]


def encoder(epsilon=1e-6, swapped=False):
    def run(blocks, x):
        for p in blocks:
            y = attention(p, norm(x, p["norm1"], p["norm1_bias"], epsilon), swapped)
            x = x + p["gamma1"] * y
            y = norm(x, p["norm2"], p["norm2_bias"]) @ p["fc1"] + p["fc1_bias"]
            x = x + p["gamma2"] * (jax.nn.gelu(y, approximate=False) @ p["fc2"] + p["fc2_bias"])
        return norm(x, np.ones(WIDTH), np.zeros(WIDTH))

    return run, (BLOCKS, X)


def test_an_epsilon_behind_a_small_scale_is_all_that_is_named():
    """Repairs were counted by fingerprints, to which two residual streams are one: a bias of zeros was
    said to hold a gain."""
    found = compare(encoder(), encoder(epsilon=1e-5))
    assert [(place.cause, place.times) for place in found.places] == [("epsilon", DEPTH)]


def test_steps_exchanged_behind_a_small_scale_are_found_in_each_block():
    found = compare(encoder(), encoder(swapped=True))
    assert [(place.cause, place.times) for place in found.places] == [("steps exchanged", DEPTH)]


def test_one_token_does_not_stand_for_all():
    """The class token alone is not normalised; a norm of A's on it alone is another."""
    p = BLOCKS[0]
    token = RNG.normal(size=(2, 1, WIDTH)) * 0.02

    def function(whole):
        def run(p, x, token):
            x = x + jnp.tanh(x @ p["proj"])
            if whole:
                u = norm(jnp.concatenate([token, x], 1), p["norm1"], p["norm1_bias"])
            else:
                u = jnp.concatenate([token, norm(x, p["norm1"], p["norm1_bias"])], 1)
            token = token + p["gamma1"] * attention(p, u)[:, :1]
            y = norm(token, p["norm2"], p["norm2_bias"])
            return token + p["gamma2"] * (jnp.tanh(y @ p["fc1"]) @ p["fc2"])

        return run, (p, X, token)

    found = compare(function(True), function(False))
    assert [place.cause for place in found.places] == ["norm left out of a part"]


class Stem(nn.Module):
    """A convolution before two norms, the first of which centres what the second does."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, WIDTH, 3, 2, 1), nn.LayerNorm(WIDTH)
        self.norm1, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 7)
        nn.init.zeros_(self.conv.bias)

    def forward(self, x):
        x = self.norm(self.conv(x).flatten(2).mT)
        return x[..., :7] + torch.tanh(self.fc(self.norm1(x)))


class LinenStem(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(WIDTH, (3, 3), 2, "SAME", name="conv")(x)
        x = linen.LayerNorm(1e-5, name="norm")(x.reshape(len(x), -1, WIDTH))
        y = linen.Dense(7, name="fc")(linen.LayerNorm(1e-5, name="norm1")(x))
        return x[..., :7] + jnp.tanh(y)


def test_a_padding_before_two_norms_is_named():
    """The mean of what the first norm has centred is round-off, and so near to any value before it."""
    torch.manual_seed(0)
    model, images = Stem().eval(), RNG.normal(size=(2, 3, 8, 10)).astype(np.float32)
    kernel = model.conv.weight.detach().numpy().transpose(2, 3, 1, 0)
    ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    params = {
        "conv": {"kernel": kernel, "bias": zeros},
        "norm": {"scale": ones, "bias": zeros},
        "norm1": {"scale": ones, "bias": zeros},
        "fc": {"kernel": model.fc.weight.detach().numpy().T, "bias": model.fc.bias.detach().numpy()},
    }
    found = compare((model, images), (LinenStem(), {"params": params}, images.transpose(0, 2, 3, 1)))
    assert [place.cause for place in found.places] == ["padding"]


def test_a_norm_behind_a_bias_of_zeros_is_left_out():
    """The bias changes nothing, but is no operation in the place of the norm: A has it, too."""

    def function(normed):
        def run(p, x):
            y = x @ p["proj"] + p["proj_bias"]
            if normed:
                y = norm(y, p["norm1"], p["norm1_bias"])
            return jax.nn.softmax(y @ p["fc1"] + p["fc1_bias"]) @ p["fc2"]

        return run, (BLOCKS[0], X)

    (place,) = compare(function(True), function(False)).places
    assert place.cause == "norm left out"


def test_gradients_that_are_repaired_one_by_one_come_to_an_end(monkeypatch):
    """What only the forward pass does wrongly is found first; the rest is said to be open."""
    monkeypatch.setattr("parity.verifier.search.places.MOST_WORK", 0)
    found = compare(encoder(), encoder(swapped=True), gradients=True)
    assert found.verdict == "DIFFERENT"
    assert found.places[0].cause == "steps exchanged"
    assert "1 repairs, more remain; mend these and compare again" in found.to_text()


def test_a_padding_that_makes_fewer_keys_is_named():
    """The programs meet again behind the attention, whose reshapes hold for one number of keys."""

    def function(padding):
        def run(kernel, p, x):
            dimensions = ("NHWC", "HWIO", "NHWC")
            y = jax.lax.conv_general_dilated(x, kernel, (2, 2), padding, dimension_numbers=dimensions)
            y = y.reshape(2, -1, 6)
            shares = jax.nn.softmax((x.reshape(2, -1, 3) @ p["query"]) @ y.mT)
            return jnp.tanh(shares @ y) @ p["out"]

        p = {"query": RNG.normal(size=(3, 6)), "out": RNG.normal(size=(6, 4))}
        return run, (RNG.normal(size=(3, 3, 3, 6)) * 0.2, p, RNG.normal(size=(2, 8, 10, 3)))

    right, arguments = function(((1, 1), (1, 1)))
    (place,) = compare((right, arguments), (function("VALID")[0], arguments)).places
    assert (place.cause, place.message) == ("padding", "0 where A has 1")


def test_a_norm_in_front_of_another_is_left_out_once_all_gains_are_ones():
    """B's only norm then yields what A's first one does, but the skip reads no wrong value of B's."""

    def function(normed):
        def run(p, x):
            x = norm(x, p["norm1"], p["norm1_bias"]) if normed else x
            return x + attention(p, norm(x, p["norm2"], p["norm2_bias"]))

        return run, (BLOCKS[0], X)

    places = compare(function(True), function(False)).places
    assert {place.cause for place in places} == {"norm left out"}


def test_a_skip_that_reads_what_is_not_normalised_is_another_mistake():
    def function(normed):
        def run(p, x):
            y = norm(x, p["norm1"], p["norm1_bias"])
            z = norm(y, p["norm2"], p["norm2_bias"])
            return (y if normed else x) + attention(p, z)

        return run, (BLOCKS[0], X)

    (place,) = compare(function(True), function(False)).places
    assert place.cause == "other value read"


def gains_of_branches(first, second, given):
    """Blocks whose two gains, inputs of their own or among the parameters, bear the block's number and
    their own."""
    names = [f"blocks.{i}.ls{k}.gamma" for i in range(DEPTH) for k in (1, 2)]
    rng = np.random.default_rng(5)
    p, gains = BLOCKS[0], {name: rng.uniform(0.5, 1.5, WIDTH) for name in names}

    def run(p, x, gains):
        for i in range(DEPTH):
            x = x + gains[f"blocks.{i}.ls{first}.gamma"] * jnp.tanh(x @ p["proj"])
            y = jax.nn.relu(x @ p["fc1"]) @ p["fc2"]
            x = x + gains[f"blocks.{i}.ls{second}.gamma"] * y
        return x

    return (run, (p, X, gains)) if given else (lambda p, x: run(p, x, p), (p | gains, X))


def test_factors_of_two_branches_exchanged_in_every_block_are_two_places():
    """A block's number is moved on alike in both names, not with the number of the factor in it."""
    places = compare(gains_of_branches(1, 2, False), gains_of_branches(2, 1, False)).places
    names = {k: f"p.blocks.{{0-2}}.ls{k}.gamma" for k in (1, 2)}
    said = {f"B reads {names[b]} where A reads {names[a]}" for a, b in ((1, 2), (2, 1))}
    assert {place.message for place in places} == said
    assert [place.times for place in places] == [DEPTH, DEPTH]


def test_an_input_that_is_read_for_another_is_not_said_to_be_another():
    found = compare(gains_of_branches(1, 2, True), gains_of_branches(2, 1, True))
    assert {place.cause for place in found.places} == {"other value read"}
    assert "another input" not in found.to_text()
