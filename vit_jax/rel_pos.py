"""A learned bias of the attention logits for each relative position."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_config.numerics.tables import count_relative_positions, relative_position_index


class RelativePositionBias(nnx.Module):
    """One number per head and offset between two patches, and three for the class token (BEiT)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.grid = cfg.grid
        self.table = nnx.Param(jnp.zeros((count_relative_positions(cfg.grid), cfg.num_heads)))

    def __call__(self) -> jax.Array:
        """Return the bias of every pair of tokens: (h, 1 + N, 1 + N)."""
        # int32 by hand: JAX remembers the type it gave this cached array first, in x64 mode or not
        index = jnp.asarray(relative_position_index(self.grid), jnp.int32)
        return self.table[...][index].transpose(2, 0, 1)
