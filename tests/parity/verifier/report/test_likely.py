"""The line of B that most likely holds the difference, among those that are shown."""

import jax
import jax.numpy as jnp
import numpy as np

from parity.verifier.locate import compare
from tests.support import operations_models as models

RNG = np.random.default_rng(0)
X, W, V = (RNG.standard_normal(shape) for shape in ((3, 4, 5), (5, 5), (5, 2)))


def right(x):
    scores = (jnp.exp(x) * 0.5) @ W
    return jax.nn.softmax(scores) @ V


def scaled_on_its_own_line(x):
    scores = jnp.exp(x) @ W
    scores = scores * 0.25
    return jax.nn.softmax(scores) @ V


def with_an_activation(x):
    return jnp.tanh(jnp.exp(x) @ W) @ V


def without(x):
    y = jnp.exp(x) @ W
    return y @ V


def likely(a, b):
    found = compare((a, X), (b, X))
    (place,) = found.places
    assert len(place.b.lines) > 1
    assert place.b.likely is not None
    line = place.b.lines[place.b.likely]
    assert f"   > {line.line:>5} | {line.text}" in found.to_text()
    assert found.to_text().count("   > ") == 1
    return line.text


def test_a_wrong_number_is_where_it_is_read():
    assert likely(right, scaled_on_its_own_line) == "scores = scores * 0.25"


def test_what_is_left_out_is_missing_where_its_value_is_read():
    assert likely(with_an_activation, without) == "return y @ V"


def test_a_product_along_the_other_axis_is_wrong_not_what_made_its_operand():
    def channels(x, product):
        weights = jax.nn.softmax(jnp.einsum("bnc,bnd->bcd", x @ A, x @ B))
        return jnp.tanh(jnp.einsum(product, weights, x))

    def right(x):
        return channels(x, "bcd,bnd->bnc")

    def wrong(x):
        weights = jax.nn.softmax(jnp.einsum("bnc,bnd->bcd", x @ A, x @ B))
        return jnp.tanh(jnp.einsum("bcd,bnc->bnd", weights, x))

    x, A, B = (RNG.standard_normal(shape) for shape in ((2, 5, 6), (6, 6), (6, 6)))
    (place,) = compare((right, x), (wrong, x)).places
    assert place.cause == "transposed"
    assert place.b.lines[place.b.likely or 0].text.startswith("return jnp.tanh(")


def test_one_line_is_no_choice():
    model, weights, x = models.torch_model()
    found = compare((model, x), (models.jax_model("tanh"), (weights, x)))
    assert [place.b.likely for place in found.places if len(place.b.lines) == 1] == [0]
    assert "   > " not in found.to_text()


def test_of_several_lines_that_with_the_most_operations_of_its_own():
    def port(x):
        y = jnp.exp(x) @ W
        y = y + 0.25
        y = jnp.sinh(y) * jnp.cosh(y)
        return y @ V

    assert likely(lambda x: jnp.tanh(jnp.exp(x) @ W + 0.5) @ V, port) == "y = jnp.sinh(y) * jnp.cosh(y)"
