"""rope_axial with the rotate_half of the language models."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from rope_axial import attend, tokens, weights


def rotate_half(x):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([-b, a], axis=-1)


def turn(x, theta):
    cos, sin = (jnp.tile(f(theta), 2) for f in (jnp.cos, jnp.sin))
    return x * cos + rotate_half(x) * sin  # !wrong


def side_wrong():
    return (lambda p, x: attend(p, x, turn=turn)), (to_jax(weights()), to_jax(tokens()))
