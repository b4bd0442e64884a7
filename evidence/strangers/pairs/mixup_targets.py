"""smoothing with hard labels mixed by two cross entropies."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax

from draw import to_jax
from smoothing import BATCH, CLASSES, EPS, LAM, inputs, mixed


def loss(weight, x, y):
    logits = mixed(x).reshape(BATCH, -1) @ weight.T
    smooth = lambda y: optax.smooth_labels(jax.nn.one_hot(y, CLASSES, dtype=logits.dtype), EPS)
    ce = lambda y: optax.softmax_cross_entropy(logits, smooth(y))
    return jnp.mean(LAM * ce(y[::-1]) + (1 - LAM) * ce(y))  # !wrong


def side_wrong():
    return jax.jit(loss), inputs(to_jax)
