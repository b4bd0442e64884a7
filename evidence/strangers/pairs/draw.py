"""Seeded weights and inputs for the pairs, as numpy arrays.

PAIRS_FLOAT64=1 draws float64 numbers and makes float64 the default of the frameworks (check.py uses it).
"""
import os

import numpy as np

FLOAT64 = bool(os.environ.get("PAIRS_FLOAT64"))
FLOAT = np.float64 if FLOAT64 else np.float32
os.environ.setdefault("KERAS_BACKEND", "jax")
if FLOAT64:
    import jax
    import torch

    torch.set_default_dtype(torch.float64)
    jax.config.update("jax_enable_x64", True)


class Draw:
    """Draws arrays one after the other from one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def data(self, *shape, scale=1.0, around=0.0):
        return (around + scale * self.rng.standard_normal(shape)).astype(FLOAT)

    def mat(self, *shape, fan=None):
        """A weight with the usual 1/sqrt(fan in) spread; fan in is the last axis unless told."""
        return self.data(*shape, scale=1.3 / np.sqrt(fan or shape[-1]))

    def vec(self, *shape):
        return self.data(*shape, scale=0.2)

    def gain(self, *shape):
        return self.data(*shape, scale=0.2, around=1.0)

    def ids(self, high, *shape):
        return self.rng.integers(0, high, shape).astype(np.int32)


def to_torch(tree):
    import torch

    if isinstance(tree, dict):
        return {k: to_torch(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_torch(v) for v in tree)
    value = torch.from_numpy(np.array(tree))
    return value.long() if value.dtype == torch.int32 else value


def to_jax(tree):
    import jax
    import jax.numpy as jnp

    return jax.tree.map(jnp.asarray, tree)
