"""swin with patch merging by slices."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from swin import stage, tokens, weights


def merge(x):
    x = jnp.pad(x, [(0, 0), (0, 0), (0, 1), (0, 0)])
    parts = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]  # !wrong
    return jnp.concatenate(parts, axis=-1)


def side_wrong():
    return (lambda p, x: stage(p, x, merge=merge)), (to_jax(weights()), to_jax(tokens()))
