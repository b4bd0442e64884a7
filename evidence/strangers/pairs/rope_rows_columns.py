"""rope_axial with the grid from meshgrid."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from rope_axial import C, GH, GW, attend, tokens, weights


def grid_angles():
    x, y = jnp.meshgrid(jnp.arange(GW), jnp.arange(GH), indexing="ij")  # !wrong
    freqs = 100.0 ** (-jnp.arange(0, C, 4) / C)
    return jnp.concatenate([jnp.outer(x.ravel(), freqs), jnp.outer(y.ravel(), freqs)], axis=-1)


def side_wrong():
    params = to_jax(weights())
    return (lambda x: attend(params, x, theta=grid_angles())), (to_jax(tokens()),)
