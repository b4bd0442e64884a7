"""Adam written out in a lax.scan, against torch.optim.Adam."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, params, train_torch

LR, B1, B2, EPS = 0.03, 0.9, 0.98, 1e-8


def side_torch():
    return train_torch(lambda m: torch.optim.Adam(m.parameters(), LR, (B1, B2), EPS)), batches(to_torch, steps=3)


def adam(p, xs, ys, correct=True):
    def step(carry, batch):
        p, m, v, t = carry
        loss, g = jax.value_and_grad(cross_entropy)(p, *batch)
        m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, m, g)
        v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, v, g)
        first = 1 - B1 ** (t + 1)
        second = 1 - B2 ** (t + 1) if correct else 1.0  # !wrong
        p = jax.tree.map(lambda p, m, v: p - LR * (m / first) / (jnp.sqrt(v / second) + EPS), p, m, v)
        return (p, m, v, t + 1), loss

    zeros = jax.tree.map(jnp.zeros_like, p)
    (p, *_), losses = jax.lax.scan(step, (p, zeros, zeros, 0.0), (xs, ys))
    return losses, p


def side_right():
    return adam, (params(), *batches(to_jax, steps=3))


def side_wrong():
    return (lambda *a: adam(*a, correct=False)), (params(), *batches(to_jax, steps=3))
