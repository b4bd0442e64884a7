"""Linear layers whose inputs and outputs are clamped."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vit_config import ViTConfig
from vit_jax.linear import Linear, add_broadcast
from vit_jax.rules import project


def clamp(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Clamp values to [low, high]; a value at a bound keeps its gradient."""
    x = jnp.where(x < low, low, x)
    return jnp.where(x > high, high, x)


class BoundedLinear(Linear):
    """A linear layer whose parts - the columns of its kernel, divided - each clamp input and output.

    `bounds` has the lowest and highest input and the lowest and highest output, part by part; no
    training changes them.
    """

    def __init__(self, inputs: int, sizes: Sequence[int], *, bias: bool, rngs: nnx.Rngs):
        super().__init__(inputs, sum(sizes), use_bias=bias, rngs=rngs)
        self.sizes = tuple(sizes)
        self.bounds = nnx.Param(jnp.zeros((4 * len(sizes),)))

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map (..., inputs) to (..., outputs), where a mesh may have split the outputs into a part's
        number and the rest."""
        bounds = jax.lax.stop_gradient(self.bounds[...]).reshape(-1, 4)  # (parts, 4)
        weights = self._parts(self.kernel[...], 1)
        biases = [None] * len(weights) if self.bias is None else self._parts(self.bias[...], 0)
        parts = []
        for weight, bias, (low_in, high_in, low_out, high_out) in zip(
            weights, biases, bounds, strict=True
        ):
            flat = clamp(x, low_in, high_in).reshape(-1, x.shape[-1])  # (tokens, inputs)
            y = project(flat, weight, self.precision)
            y = y if bias is None else add_broadcast(y, bias)
            parts.append(clamp(y, low_out, high_out))
        split = weights[0].ndim > 2
        y = jnp.stack(parts, axis=1) if split else jnp.concatenate(parts, axis=-1)
        return y.reshape(*x.shape[:-1], *y.shape[1:])

    def _parts(self, whole: jax.Array, axis: int) -> list[jax.Array]:
        """Divide an array along the axis of its outputs."""
        if whole.ndim > axis + 1:
            return list(jnp.moveaxis(whole, axis, 0))
        return jnp.split(whole, np.cumsum(self.sizes)[:-1], axis=axis)


def make_linear(cfg: ViTConfig, inputs: int, *sizes: int, bias: bool, rngs: nnx.Rngs) -> Linear:
    """Build a linear layer of a block, whose outputs are joined parts of these sizes."""
    if cfg.linear_bounds:
        return BoundedLinear(inputs, sizes, bias=bias, rngs=rngs)
    return Linear(inputs, sum(sizes), use_bias=bias, rngs=rngs)
