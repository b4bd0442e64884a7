"""What a cause may say and what it may not: only what is known of both sides."""

import jax
import jax.numpy as jnp
import numpy as np

from parity.verifier.operations import compare

RNG = np.random.default_rng(5)


def test_a_table_that_every_layer_adds_is_a_term_and_no_residual():
    w = RNG.normal(size=(2, 6, 6)) / 3
    x, at = RNG.normal(size=(5, 6)), RNG.normal(size=(5, 6))

    def function(skipped):
        def of(w, x, at):
            at = jnp.tanh(at)
            for i, each in enumerate(w):
                x = jnp.tanh(x @ each) + (0 if i == skipped else at)
            return x @ w[0]

        return lambda w, x: of(w, x, at), (w, x)

    found = compare(function(None), function(1))
    assert [place.cause for place in found.places] == ["term left out"]


def test_how_a_given_number_was_computed_is_not_said():
    def function(p, x):
        return jax.nn.softmax(x * p["slopes"]) @ p["kernel"]

    def port(p, x):
        return jax.nn.softmax(x * 2.0 ** (-8 * jnp.arange(4) / 4)) @ p["kernel"]

    p = {"slopes": 2.0 ** (-8 * (np.arange(4) + 1) / 4), "kernel": RNG.normal(size=(4, 3))}
    x = RNG.normal(size=(5, 4))
    found = compare((function, (p, x)), (port, (p, x)))
    assert [place.cause for place in found.places] == ["factor"]


def test_of_a_factor_the_line_that_reads_it_is_shown():
    # gradients summed over two parts: the sum is right, the step should have taken their mean
    def loss(w, x, y):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    def whole(w, x, y):
        return w - 0.1 * jax.grad(loss)(w, x, y)

    def parts(w, x, y):
        def one(total, batch):
            return total + jax.grad(loss)(w, *batch), None

        batches = x.reshape(2, 4, 6), y.reshape(2, 4, 4)
        total, _ = jax.lax.scan(one, jnp.zeros_like(w), batches)
        return w - 0.1 * total  # wrong

    given = RNG.normal(size=(6, 4)), RNG.normal(size=(8, 6)), RNG.normal(size=(8, 4))
    (place,) = compare((whole, given), (parts, given)).places
    assert place.cause == "factor"
    assert "# wrong" in place.b.lines[-1].text
