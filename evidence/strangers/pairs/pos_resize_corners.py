"""Bilinear positions by gathering four neighbours."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from draw import to_jax
from pos_resize import D, NEW, OLD, inputs


def source(old, new, wrong):
    if wrong:
        return jnp.linspace(0.0, old - 1.0, new)  # !wrong
    return (jnp.arange(new) + 0.5) * (old / new) - 0.5


def bilinear(pos, x, wrong=False):
    grid = pos[0, 1:].reshape(*OLD, D)
    y, x_ = (source(o, n, wrong) for o, n in zip(OLD, NEW))
    points = jnp.stack(jnp.meshgrid(y, x_, indexing="ij"))
    sample = lambda channel: jax.scipy.ndimage.map_coordinates(channel, points, order=1, mode="nearest")
    grid = jax.vmap(sample, in_axes=-1, out_axes=-1)(grid)
    return x + jnp.concatenate([pos[0, :1], grid.reshape(-1, D)])


def side_wrong():
    return (lambda pos, x: bilinear(pos, x, wrong=True)), inputs(to_jax)


def side_right():
    return bilinear, inputs(to_jax)
