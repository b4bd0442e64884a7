"""eqx_dino with a per-token feed-forward."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp

from draw import to_jax
from eqx_dino import Block, patch_tokens, trunk


class TokenwiseBlock(Block):
    def feed(self, x):
        def token(t):
            value, gate = jnp.split(self.w12(t), 2)  # !wrong
            return self.w3(value * jax.nn.silu(gate))

        return jax.vmap(token)(x)


def side_wrong():
    model = trunk(TokenwiseBlock)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    return (lambda params, x: jax.vmap(eqx.combine(params, static))(x)), (params, to_jax(patch_tokens()))
