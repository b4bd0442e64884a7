"""Positions of a 3 x 5 grid resized to 5 x 7: torch bicubic against a hand-made JAX resampler."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

OLD, NEW, D = (3, 5), (5, 7), 11


def inputs(cast):
    d = Draw(111)
    return cast(d.vec(1, 1 + OLD[0] * OLD[1], D)), cast(d.data(2, 1 + NEW[0] * NEW[1], D))


def add_positions(pos, x):
    grid = pos[:, 1:].reshape(1, *OLD, D).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=NEW, mode="bicubic", align_corners=False)
    return x + torch.cat([pos[:, :1], grid.flatten(2).transpose(1, 2)], 1)


def side_torch():
    return add_positions, inputs(to_torch)


def cubic_matrix(old, new, a=-0.75):
    """The (new, old) matrix of torch's bicubic: the centres of pixels meet, edges are held."""
    at = (np.arange(new) + 0.5) * old / new - 0.5
    m = np.zeros((new, old))
    for i, t in enumerate(at):
        for j in range(int(np.floor(t)) - 1, int(np.floor(t)) + 3):
            s = abs(t - j)
            near = ((a + 2) * s - (a + 3)) * s * s + 1
            far = ((a * s - 5 * a) * s + 8 * a) * s - 4 * a
            m[i, np.clip(j, 0, old - 1)] += near if s <= 1 else far if s < 2 else 0.0
    return jnp.asarray(m)


def resample(pos, x):
    grid = pos[0, 1:].reshape(*OLD, D)
    rows, columns = (cubic_matrix(o, n).astype(x.dtype) for o, n in zip(OLD, NEW))
    grid = jnp.einsum("ih,jw,hwd->ijd", rows, columns, grid)
    return x + jnp.concatenate([pos[:, :1], grid.reshape(1, -1, D)], 1)


def side_jax():
    return resample, inputs(to_jax)


def side_linear():
    """A's counterpart with plain bilinear, as older checkpoints had it."""
    def run(pos, x):
        grid = pos[:, 1:].reshape(1, *OLD, D).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=NEW, mode="bilinear", align_corners=False)
        return x + torch.cat([pos[:, :1], grid.flatten(2).transpose(1, 2)], 1)

    return run, inputs(to_torch)
