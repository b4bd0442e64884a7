"""Adam over two epochs: a torch loop with one optimizer against a JAX epoch function."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, params, train_torch


def side_torch():
    return train_torch(lambda m: torch.optim.Adam(m.parameters(), 0.02)), batches(to_torch, steps=4)


def epoch(tx, p, state, xs, ys):
    def step(carry, batch):
        p, state = carry
        loss, grads = jax.value_and_grad(cross_entropy)(p, *batch)
        updates, state = tx.update(grads, state, p)
        return (optax.apply_updates(p, updates), state), loss

    return jax.lax.scan(step, (p, state), (xs, ys))


def fit(p, xs, ys, wrong=False):
    tx, losses = optax.adam(0.02), []
    state = tx.init(p)
    for half in (slice(0, 2), slice(2, 4)):
        if wrong:
            state = tx.init(p)  # !wrong
        (p, state), loss = epoch(tx, p, state, xs[half], ys[half])
        losses.append(loss)
    return jnp.concatenate(losses), p


def side_scan():
    return fit, (params(), *batches(to_jax, steps=4))


def side_wrong():
    return (lambda *a: fit(*a, wrong=True)), (params(), *batches(to_jax, steps=4))
