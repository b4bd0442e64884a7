"""Linear layers and sums whose small operand's gradient is added up in at least float32.

The gradient of a broadcast operand is a sum over images and tokens. XLA's CPU adds bfloat16 numbers
up in bfloat16, which over a batch of 32 loses most of their digits; PyTorch adds them up in float32.
Adding in float32 and rounding once gives the same result forward, bit for bit, and a wide sum
backward.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from vit_jax.rules import project

NOT_DRAWN = nnx.initializers.zeros_init()  # flax would draw what `vit_jax.init` draws anew


def add_broadcast(x: jax.Array, small: jax.Array) -> jax.Array:
    """Add `small`, which has axes of length one or fewer axes, to `x`."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return (x.astype(wide) + small.astype(wide)).astype(jnp.promote_types(x.dtype, small.dtype))


class Linear(nnx.Linear):
    """`nnx.Linear` on a matrix of all tokens, the bias added by `add_broadcast`.

    The gradient of the weight is then a product of two matrices; of arrays with more axes, XLA's CPU
    backend transposes both before it multiplies.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, kernel_init=NOT_DRAWN, **kwargs)

    def __call__(self, inputs: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map (..., inputs) to (..., outputs), where outputs may be several axes of the weight."""
        x = inputs.reshape(-1, inputs.shape[-1])  # (tokens, inputs)
        y = project(x, self.kernel[...], self.precision)
        y = y if self.bias is None else add_broadcast(y, self.bias[...])
        return y.reshape(*inputs.shape[:-1], *y.shape[1:])
