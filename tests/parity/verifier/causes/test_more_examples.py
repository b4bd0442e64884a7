"""Further examples of causes: mistakes that one expression a cause does not show."""

from __future__ import annotations

import pytest

from parity.verifier.causes.cause import Cause
from parity.verifier.causes.examples import sides
from parity.verifier.compare import compare

LAST = "jnp.take_along_axis(h := jnp.tanh(x @ w), ({})[:, None, None], 1) @ v"
KEPT = "(table[:, :5] > 0)"
MORE = [
    ("index", LAST.format("(h > 0).sum(-1).argmax(1)"), LAST.format("jnp.full(2, 4)"), "where A has"),
    (
        "index",
        LAST.format("(x[..., 0] > 0).sum(1) - 1"),
        LAST.format("(x[..., 0] > 0).sum(1)"),
        "each is A's + 1",
    ),
    (
        "mask",
        "jnp.where(x.sum(-1, keepdims=True) > 0, x @ w, 0) @ v",
        "jnp.where(~(x.sum(-1, keepdims=True) > 0), x @ w, 0) @ v",
        "it shuts what A keeps",
    ),
    *(
        ("mask", f"nn.softmax(jnp.where({KEPT}, x @ x.mT, -1e9)) @ x", scores, said)
        for scores, said in (
            (f"nn.softmax(jnp.where({KEPT}.T, x @ x.mT, -1e9)) @ x", "it is A's, transposed"),
            (f"nn.softmax(jnp.where(~{KEPT}, x @ x.mT, -1e9)) @ x", "it shuts what A keeps"),
            (f"nn.softmax(x @ x.mT + jnp.where({KEPT}.T, 0, -1e9)) @ x", "it is A's, transposed"),
        )
    ),
    *(
        ("norm left out", "nn.softmax(unit(x @ w) @ unit(x @ v).mT) @ x", scores, said)
        for scores, said in (
            ("nn.softmax(unit(x @ w) @ (x @ v).mT) @ x", "only A has"),
            ("nn.softmax((x @ w) @ (x @ v).mT) @ x", "2 times"),
        )
    ),
    (
        "number",
        "jnp.tanh(jnp.tanh(x) * 0.70710678 + b)",
        "jnp.tanh(jnp.tanh(x) / 1.4142 + b)",
        "1.4142 where A has 1.414213565 = 1 / 0.70710678",
    ),
    (
        "number",
        "jnp.tanh(jnp.tanh(x) / 1.7 + b)",
        "jnp.tanh(jnp.tanh(x) * 0.5 + b)",
        "0.5 where A has 0.5882352941 = 1 / 1.7",
    ),
    ("factor", "jnp.tanh(x @ w / 2 + table)", "jnp.tanh((x @ w + table) / 2)", "is 0.5 times A's"),
    (
        "reduction",
        "((x @ w)**2).mean(-1).ravel() @ (m := (x[..., 0] > 0).ravel() * 1.0) / m.sum()",
        "((x @ w)**2).mean(-1).mean()",
        "that of the numbers that a mask keeps",
    ),
    ("activation", "nn.softmax(x @ w) * v[0]", "nn.sigmoid(x @ w) * v[0]", "sigmoid where A has"),
    (
        "activation",
        "(h := x @ w) * (jax.lax.erfc(-h * 0.5**0.5) * 0.5) @ v",
        "(h := x @ w) * nn.sigmoid(h) @ v",
        "silu where A has gelu",
    ),
    (
        "activation",
        "jnp.tanh((s := nn.sigmoid(h := x @ w)) * (1 + h * (1 - s))) @ v",
        "jnp.tanh((s := nn.sigmoid(1.702 * (h := x @ w))) * (1 + 1.702 * h * (1 - s))) @ v",
        "the gradient of quick gelu where A has that of silu",
    ),
    *(
        ("activation", f"{a}(x @ w) @ v", f"{b}(x @ w) @ v", said)
        for a, b, said in (
            ("nn.sigmoid", "nn.hard_sigmoid", "hard sigmoid where A has sigmoid"),
            ("nn.hard_silu", "nn.silu", "silu where A has hard swish"),
            ("jnp.tanh", "nn.hard_tanh", "hard tanh where A has tanh"),
            ("nn.relu", "nn.leaky_relu", "leaky relu of slope 0.01 where A has relu"),
            ("(lambda h: jnp.where(h > 0, h, b * h))", "nn.relu", "relu where A has prelu"),
            ("nn.softplus", "nn.elu", "elu where A has softplus"),
            ("nn.mish", "nn.selu", "selu where A has mish"),
        )
    ),
    (
        "activation",
        "nn.gelu(x @ w - 7, approximate=False) @ v",
        "nn.relu(x @ w - 7) @ v",
        "relu where A has gelu",
    ),
    ("one parameter too many", "x @ w * g @ v", "x @ w * g * g @ v", "only B has mul p.g"),
    (
        "shifted",
        "jnp.tanh(x @ w + v[:5]) @ w",
        "jnp.tanh((x @ w).at[:, 1:].add(v[:4]).at[:, 0].add(v[4])) @ w",
        "of the terms of a sum",
    ),
    (
        "index",
        "(jnp.concatenate([x[:, :2], (h := x @ w)[:, :2], h[:, 3:4]], 1) + table) @ v",
        "(jnp.concatenate([x[:, :2], (h := x @ w)[:, :1], h[:, :1], h[:, 3:4]], 1) + table) @ v",
        "row 3 of axis 1 of [2, 5, 6] is A's row 2; B lacks A's row 3",
    ),
    (
        "axis",
        "norm(x @ w, g, b) @ v",
        "((h := x @ w) - h.mean((1, 2), keepdims=True)) * "
        "lax.rsqrt(h.var((1, 2), keepdims=True) + 1e-6) * g @ v + b @ v",
        "normalised over axes [1, 2] of [2, 5, 6], A's over axis 2",
    ),
    (
        "reduction",
        "jnp.tanh(averaged(x @ w, 2, 2, (0, 0))) @ v",
        "jnp.tanh(lax.reduce_window(x @ w, -jnp.inf, lax.max, (1, 2, 1), (1, 2, 1), 'VALID')) @ v",
        "the largest of each window where A has the mean",
    ),
    (
        "padding",
        "jnp.tanh(averaged(x @ w, 2, 1, (1, 0))) @ v",
        "jnp.tanh(averaged(x @ w, 2, 1, (0, 1))) @ v",
        "((0,1),) where A has ((1,0),)",
    ),
    (
        "stride",
        "jnp.tanh(averaged(x @ w, 2, 2, (0, 0))) @ v",
        "jnp.tanh(averaged(x @ w, 2, 3, (0, 0))) @ v",
        "3 where A has 2",
    ),
    (
        "axis",
        "jnp.tanh(nn.softmax(x @ w, 1) @ v) + nn.softmax(x @ w, 2)",
        "jnp.tanh(nn.softmax(x @ w, 2) @ v) + nn.softmax(x @ w, 2)",
        "softmax over axis 2, where A's runs over axis 1",
    ),
    (
        "axis",
        "jnp.tanh(nn.log_softmax(x @ w, 1) @ v)",
        "jnp.tanh(nn.log_softmax(x @ w, 2) @ v)",
        "log_softmax over axis 2, where A's runs over axis 1",
    ),
    (
        "scale left out",
        "(x @ w / 0.1) / (jnp.sqrt((x @ v)**2 / 0.02) + 1e-3)",
        "(x @ w) / (jnp.sqrt((x @ v)**2) + 1e-3)",
        "2 times",
    ),
    (
        "one term too many",
        "jnp.tanh(x @ w) @ v",
        "jnp.tanh(x @ w + jnp.full(6, 0.3) + 0.2) @ v",
        "only B has add 0.3 and add 0.2",
    ),
    (
        "RMS norm for layer norm",
        "(h := x - x.mean(-1, keepdims=True)) / jnp.sqrt((h**2).mean(-1, keepdims=True))",
        "(h := x - jnp.zeros_like(x[..., :1])) / jnp.sqrt((h**2).mean(-1, keepdims=True))",
        "only A takes the mean off",
    ),
    (
        "operands exchanged",
        "(x - g) * lax.rsqrt(g[None] ** 2 + b**2) * b",
        "(x - b) * lax.rsqrt(g[None] ** 2 + b**2) * g",
        "",
    ),
    (
        "steps exchanged",
        "norm((x @ w).mean(1), g, b) @ v",
        "norm(x @ w, g, b).mean(1) @ v",
        "div comes first in A and last in B",
    ),
    (
        "stride",
        "jnp.tanh(conv(x, k, (2,), [(0, 0)], rhs_dilation=None)).std(1)",
        "jnp.tanh(conv(x, k, (1,), [(0, 0)], rhs_dilation=None)).std(1)",
        "1 where A has 2",
    ),
    (
        "other value read",
        "(h := x + norm(x, g, b) @ w) + jnp.tanh(norm(h, 1.1, g) @ v)",
        "x + norm(x, g, b) @ w + jnp.tanh(norm(x, 1.1, g) @ v)",
        "where A reads",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "a", "b", "said"), MORE, ids=lambda each: each[:24].replace(" ", "-"))
def test_an_example_has_its_cause_and_no_other(name, a, b, said):
    comparison = compare(*sides(Cause(name, "", lambda: None, a, b)))
    assert set(comparison.causes) == {name}, comparison.to_text()
    assert said in comparison.to_text()


NAMELESS = [
    # a step that underflows is no step that is left out
    ("x + nn.gelu(x @ w - 40, approximate=False) @ v + 1", "x + nn.relu(x @ w - 40) @ v + jnp.exp(x)"),
    # all numbers are negative: a multiple, and no leaky relu
    ("jnp.tanh(-jnp.exp(x @ w) * 0.3) @ v", "jnp.tanh(nn.relu(-jnp.exp(x @ w))) @ v + b"),
    # other groups and another epsilon
    ("grouped(x @ w, 2) @ v", "grouped((x @ w) * 1e-3, 3) @ v"),
    # another window and another padding
    ("averaged(x @ w, 3, 1, (1, 1)) @ v", "averaged(x @ w, 2, 1, (1, 0)) @ v"),
]


@pytest.mark.parametrize(("a", "b"), NAMELESS, ids=lambda each: each[:24].replace(" ", "-"))
def test_what_no_one_exchange_explains_has_no_name(a, b):
    comparison = compare(*sides(Cause("", "", lambda: None, a, b)))
    assert comparison.verdict == "DIFFERENT"
    assert not comparison.causes, comparison.to_text()


def test_an_order_is_traced_to_where_it_arose():
    """Attention does not see in which order its tokens stand; what joined them is shown all the same."""
    joined = "(lambda t: (t + nn.softmax(t @ t.mT) @ t @ w) * g)(jnp.concatenate([{}], 1))"
    a, b = "v[None, :1].repeat(2, 0), v[None, 1:3].repeat(2, 0), x @ w", ""
    b = "v[None, 1:3].repeat(2, 0), v[None, :1].repeat(2, 0), x @ w"
    comparison = compare(*sides(Cause("", "", lambda: None, joined.format(a), joined.format(b))))
    assert comparison.causes == ("permuted",)
    assert "concat" in comparison.places[0].b.formula


def test_a_mask_is_shown_where_it_is_made(tmp_path):
    code = """
import torch
from torch.nn import functional as F

def side(last):
    w = torch.linspace(-1, 1, 20).reshape(4, 5)
    def masked(x):
        keep = torch.ones(5, 5, dtype=torch.bool).tril(last)
        keep = keep[None]
        s = x @ w
        s = s.masked_fill(~keep, float("-inf"))
        return s.softmax(-1)
    return masked, torch.linspace(0, 2, 40).reshape(2, 5, 4)

def a():
    return side(0)

def b():
    return side(1)
"""
    import parity

    file = tmp_path / "masks.py"
    file.write_text(code)
    comparison = parity.diff(f"{file}:a", f"{file}:b")
    assert {"causal mask"} == set(comparison.causes)
    assert 8 in {line.line for line in comparison.places[0].b.lines}
