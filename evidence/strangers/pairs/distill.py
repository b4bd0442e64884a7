"""Distillation from a warm teacher: torch F.kl_div against optax-free JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

T, ALPHA, CLASSES = 3.0, 0.7, 11


def inputs(cast):
    d = Draw(471)
    return cast(d.data(5, CLASSES, scale=2)), cast(d.data(5, CLASSES, scale=2)), cast(d.ids(CLASSES, 5))


def side_torch():
    def loss(student, teacher, labels):
        soft = F.kl_div(F.log_softmax(student / T, 1), F.log_softmax(teacher / T, 1), reduction="batchmean", log_target=True)
        return ALPHA * T**2 * soft + (1 - ALPHA) * F.cross_entropy(student, labels)

    return loss, inputs(to_torch)


def kl(p, q):
    """KL(p || q) of two rows of logits, the mean over rows."""
    p, q = jax.nn.log_softmax(p / T), jax.nn.log_softmax(q / T)
    return jnp.sum(jnp.exp(p) * (p - q), axis=-1).mean()


def hard(student, labels):
    return -jnp.mean(jax.vmap(lambda z, y: jax.nn.log_softmax(z)[y])(student, labels))


def side_jax():
    return (lambda s, t, y: ALPHA * T**2 * kl(t, s) + (1 - ALPHA) * hard(s, y)), inputs(to_jax)


def side_wrong():
    def loss(student, teacher, labels):
        soft = kl(student, teacher)  # !wrong
        return ALPHA * T**2 * soft + (1 - ALPHA) * hard(student, labels)

    return loss, inputs(to_jax)
