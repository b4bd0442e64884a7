"""Operations that one framework writes as a loop, a choice or a fused call, and the other one by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import parity

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
CHOICES = (jnp.sin, jnp.cos, jnp.tanh)


def scanned_jax(x, reverse=False):
    return lax.scan(lambda c, row: (0.5 * c + row, c), jnp.zeros(5), x, reverse=reverse)[1]


def scanned_torch(x):
    carries = [torch.zeros(5)]
    for row in x[:-1]:
        carries.append(0.5 * carries[-1] + row)
    return torch.stack(carries)


def while_jax(x):
    return lax.while_loop(
        lambda carry: carry[0] < 4, lambda c: (c[0] + 1, jnp.tanh(1.5 * c[1] + 0.1 * c[0])), (0, x)
    )[1]


def while_torch(x, steps=4):
    for i in range(steps):
        x = torch.tanh(1.5 * x + 0.1 * i)
    return x


def for_torch(x):
    x = x.clone()
    for i in range(3):
        x[i] = 2 * x[i] + i
    return x


def placed_torch(x, column=2):
    y = 2 * x
    y[1:3, column : column + 2] = x[:2, :2] + 1
    return y


def divided_torch(x, rounding="trunc"):
    return x * torch.div(torch.arange(-7, 8).reshape(3, 5), 2, rounding_mode=rounding)


def by_number_torch(x):
    kind = torch.arange(15).reshape(3, 5) % 3
    return torch.where(kind == 0, x.sin(), torch.where(kind == 1, x.cos(), 3 * x))


def attention_jax(x, causal=True):
    x = x[None, None]
    scores = x @ x.swapaxes(-1, -2) / np.sqrt(5)
    scores = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), scores, -jnp.inf) if causal else scores
    return jax.nn.softmax(scores) @ x


def attention_torch(x):
    x = x[None, None]
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


PAIRS = {
    "scan": (scanned_jax, scanned_torch),
    "while": (while_jax, while_torch),
    "for": (
        lambda x: lax.fori_loop(0, 3, lambda i, x: x.at[i].set(2 * x[i] + i), x),
        for_torch,
    ),
    "placed": (lambda x: lax.dynamic_update_slice(2 * x, x[:2, :2] + 1, (1, 2)), placed_torch),
    "integers divided": (
        lambda x: x * lax.div(jnp.arange(-7, 8).reshape(3, 5), jnp.int32(2)),
        divided_torch,
    ),
    "a switch": (lambda x: lax.switch((x[0, 0] > 9).astype(int) + 1, CHOICES, x), torch.cos),
    "a condition": (
        lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
        lambda x: x.sin() if x.sum() > 0 else x.cos(),
    ),
    "chosen by number": (
        lambda x: lax.select_n(jnp.arange(15).reshape(3, 5) % 3, jnp.sin(x), jnp.cos(x), 3 * x),
        by_number_torch,
    ),
    "GELU in float32": (  # whose derivative has other numbers in JAX, and these rounded
        lambda x: jax.nn.gelu(x.astype(jnp.float32) * 1.5, approximate=False),
        lambda x: torch.nn.functional.gelu(x * 1.5),
    ),
    "an axis added": (lambda x: lax.expand_dims(x, (1,)) + x, lambda x: x[:, None] + x),
    "a scaled product and sum": (
        lambda x: 0.5 * (x @ x.T) + 2 * x.sum(1),
        lambda x: torch.addmm(x.sum(1), x, x.T, beta=2, alpha=0.5),
    ),
    "batches of them": (
        lambda x: 0.5 * x[:, :, None] * x[:, None] + 2 * x[:, :, None],
        lambda x: torch.baddbmm(x[:, :, None], x[:, :, None], x[:, None], beta=2, alpha=0.5),
    ),
    "causal attention": (attention_jax, attention_torch),
    "running sums": (
        lambda x: jnp.cumsum(x, 0) + jnp.cumprod(x, 1) + lax.cummax(x, 0),
        lambda x: x.cumsum(0) + x.cumprod(1) + x.cummax(0).values,
    ),
    "sorted": (
        lambda x: jnp.sort(x, 1) + jnp.argsort(x, 0),
        lambda x: x.sort(1).values + x.argsort(0),
    ),
    "the largest": (lambda x: lax.top_k(x, 2)[0], lambda x: x.topk(2).values),
    "special functions": (
        lambda x: lax.lgamma(jnp.abs(x) + 1) + lax.erf_inv(jnp.tanh(x)) + lax.bessel_i0e(x),
        lambda x: (x.abs() + 1).lgamma() + x.tanh().erfinv() + torch.special.i0e(x),
    ),
}

MISTAKES = {
    "scan": (lambda x: scanned_jax(x, reverse=True), scanned_torch),
    "while": (while_jax, lambda x: while_torch(x, steps=3)),
    "placed": (PAIRS["placed"][0], lambda x: placed_torch(x, column=1)),
    "integers divided": (PAIRS["integers divided"][0], lambda x: divided_torch(x, "floor")),
    "a switch": (PAIRS["a switch"][0], torch.tanh),
    "causal attention": (lambda x: attention_jax(x, causal=False), attention_torch),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_is_equal(name):
    left, right = PAIRS[name]
    found = parity.diff((left, X), (right, torch.from_numpy(X)))
    assert found.forward.verdict == "EQUAL"
    assert found.verdict == ("INCOMPLETE" if name == "while" else "EQUAL")  # JAX runs no while backward


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen_from_both_sides(name):
    sides = [(each, x) for each, x in zip(MISTAKES[name], (X, torch.from_numpy(X)), strict=True)]
    for left, right in (sides, reversed(sides)):
        report = parity.diff(left, right)
        assert str(report.verdict) == "DIFFERENT"
        assert report.places


def test_a_constant_stack_that_is_read_backwards_is_shown():
    report = parity.diff((scanned_jax, X), (lambda x: scanned_jax(x, reverse=True), X))
    assert report.causes == ("reversed",)
