"""swin with rolls written out."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from swin import SHIFT, stage, tokens, weights


def back(y):
    y = jnp.concatenate([y[:, SHIFT[0]:], y[:, :SHIFT[0]]], axis=1)  # !wrong
    return jnp.concatenate([y[:, :, -SHIFT[1]:], y[:, :, :-SHIFT[1]]], axis=2)


def side_wrong():
    return (lambda p, x: stage(p, x, back=back)), (to_jax(weights()), to_jax(tokens()))
