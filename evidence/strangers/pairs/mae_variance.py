"""mae's loss with jnp's variance."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from mae import KEEP, inputs, mae, weights


def normed(target):
    mean = jnp.mean(target, axis=-1, keepdims=True)
    var = jnp.var(target, axis=-1, keepdims=True)  # !wrong
    return (target - mean) / (var + 1e-6) ** 0.5


def run(p, x, target, noise):
    pred, _ = mae(p, x, target, noise)
    rank = jnp.argsort(jnp.argsort(noise, axis=1), axis=1)
    mask = (rank >= KEEP).astype(x.dtype)
    loss = jnp.mean((pred - normed(target)) ** 2, axis=-1)
    return pred, (loss * mask).sum() / mask.sum()


def side_wrong():
    return run, (to_jax(weights()), *inputs(to_jax))
