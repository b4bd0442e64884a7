"""What formulas read: how each value of B's lies to A's, and which terms of two sums are the same."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.compare import compare
from parity.verifier.report.relation import relation

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
SQUARE = RNG.standard_normal((4, 4, 5))


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (X, X, "same"),
        (X, X.reshape(12, 5), "same"),
        (X, X.transpose(0, 2, 1), "same numbers, axes in the order [0, 2, 1]"),
        (X, X.transpose(1, 0, 2).reshape(4, 15), "same numbers, axes in the order [1, 0, 2]"),
        (X[:, :1], np.repeat(X[:, :1], 4, 1), "same numbers, repeated"),
        (SQUARE, SQUARE.swapaxes(0, 1), "axes exchanged (0 and 1)"),
        (X, X[:, ::-1], "reversed (axis 1)"),
        (X, X[:, ::-1, ::-1], "reversed (axes 1 and 2)"),
        (X, np.roll(X, 1, 2), "shifted (by 1 along axis 2)"),
        (X, np.roll(X, -1, 2), "shifted (by -1 along axis 2)"),
        (X, RNG.permutation(X.ravel()).reshape(X.shape), "other order"),
        (X, 1.1 * X, "differs"),
        (X, X[:, :2], "differs"),
        (np.arange(4), np.arange(4)[::-1], "reversed (axis 0)"),
    ],
)
def test_how_one_array_lies_to_another(a, b, said):
    assert relation(a, b) == said


def biased(x, p, wrong):
    scores = jnp.exp(x) @ p["w"]
    if wrong:
        return jax.nn.softmax(2 * scores + p["t"].T, -1) @ p["v"]
    return jax.nn.softmax(scores + p["t"], -1) @ p["v"]


def sides():
    p = {"w": RNG.standard_normal((5, 4)), "t": RNG.standard_normal((4, 4)), "v": SQUARE[0]}
    return tuple((partial(biased, p=p, wrong=wrong), (SQUARE,)) for wrong in (False, True))


def relations(side):
    return {each.letter: each.relation for each in side.operands}


def test_operands_and_terms_of_a_place():
    """Two mistakes with no value between them: neither term of the sum meets alone."""

    def a(x, p):
        return jnp.sin(jnp.exp(x) @ p["w"] + p["u"] * x[:, :1]) @ p["v"]

    def b(x, p):
        return jnp.sin(jnp.exp(x)[::-1] @ p["w"] + 2 * p["u"] * x[:, :1]) @ p["v"]

    p = {"w": X[0].T, "u": X[0, 0, :1], "v": SQUARE[:, 0]}
    found = compare((partial(a, p=p), X[1]), (partial(b, p=p), X[1]), backward=False)
    (place,) = found.places
    assert [each.relation for each in place.terms] == ["reversed (axis 0)", "differs"]
    lines = [" ".join(each.split()) for each in found.to_text().splitlines()]
    assert "both are sums; their terms:" in lines
    assert "A x B x reversed (axis 0)" in lines


def test_a_square_value_that_is_turned_is_told_from_one_in_another_layout():
    place = compare(*sides(), backward=False).places[0]
    assert "axes exchanged (1 and 2)" in relations(place.b).values()
    q, k = RNG.standard_normal((2, 3, 7, 6)), RNG.standard_normal((2, 3, 7, 6))

    def heads_first(q, k):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1)

    def heads_behind(q, k):
        return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)

    a = heads_first, (torch.from_numpy(q), torch.from_numpy(k))
    b = heads_behind, (q.swapaxes(1, 2), k.swapaxes(1, 2))
    found = compare(a, b, backward=False)
    (place,) = found.places
    words = relations(place.b).values()
    assert words
    assert all(each == "same" or each.startswith("same numbers") for each in words)


def test_values_that_one_side_alone_has():
    p = {"w": RNG.standard_normal((5, 5)), "g": RNG.standard_normal(5)}

    def a(x, p):
        return jnp.tanh(x @ p["w"]) * p["g"]

    def b(x, p):
        return jnp.tanh(x @ p["w"]) + jnp.tanh(p["g"])

    found = compare((partial(a, p=p), (X[0],)), (partial(b, p=p), (X[0],)), backward=False)
    place = found.places[0]
    assert "same" in relations(place.b).values()
    assert "B's own" not in relations(place.a).values()
    plain = json.loads(json.dumps(found.to_dict()))["places"][0]["b"]["operands"][0]
    assert set(plain) == {"letter", "line", "shape", "module", "relation"}


def test_the_legend_says_it():
    text = compare(*sides(), backward=False).to_text()
    assert "; axes exchanged (1 and 2)" in text
