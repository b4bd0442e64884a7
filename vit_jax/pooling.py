"""From tokens to the vector that the head sees."""

import jax
from flax import nnx

from vit_config import ViTConfig


class Pool(nnx.Module):
    """The class token, or the mean of the patch tokens."""

    def __init__(self, cfg: ViTConfig):
        self.kind = cfg.pool
        self.num_prefix_tokens = cfg.num_prefix_tokens

    def __call__(self, x: jax.Array) -> jax.Array:
        """Tokens (B, P + N, D) to (B, D)."""
        if self.kind == "class":
            return x[:, 0]
        return x[:, self.num_prefix_tokens :].mean(axis=1)
