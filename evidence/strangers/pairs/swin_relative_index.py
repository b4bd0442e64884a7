"""swin with the flat relative index."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp
import numpy as np

from draw import to_jax
from swin import WH, WW, stage, tokens, weights


def bias(table):
    grid = np.stack(np.meshgrid(np.arange(WH), np.arange(WW), indexing="ij")).reshape(2, -1)
    dy, dx = grid[:, :, None] - grid[:, None, :]
    flat = (dy + WH - 1) * (2 * WH - 1) + dx + WW - 1  # !wrong
    return jnp.take(table, flat, axis=0).transpose(2, 0, 1)


def side_wrong():
    params = to_jax(weights())
    return (lambda x: stage(params, x, bias=bias)), (to_jax(tokens()),)
