"""A model whose norm cancels: an example for `parity diff --bisect-precision`."""

from typing import Any

import numpy as np


def model() -> tuple[Any, Any]:
    """A residual block in JAX on activations far from zero, with its weights and its input."""
    import jax.numpy as jnp

    def block(params, x):
        x = x + params["shift"]  # far from zero, as the residual stream of a deep model is
        y = x - x.mean(-1, keepdims=True)
        y = y / jnp.sqrt((y * y).mean(-1, keepdims=True) + 1e-6)
        return jnp.tanh(y @ params["weight"])

    rng = np.random.default_rng(0)
    params = {"shift": np.full(31, 50.0), "weight": rng.normal(size=(31, 11)) / 31**0.5}
    return block, (params, rng.normal(size=(7, 31)))
