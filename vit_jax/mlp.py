"""The MLP of a block and its activation."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.drop import Dropout

ACTIVATIONS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),  # arXiv 1606.08415, with erf
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "silu": jax.nn.silu,
    "relu": lambda x: jnp.maximum(x, 0),
}


class Activation(nnx.Module):
    """The schema's activation, a module so that its output can be watched."""

    def __init__(self, cfg: ViTConfig):
        self.kind = cfg.act

    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply elementwise."""
        return ACTIVATIONS[self.kind](x)


class Mlp(nnx.Module):
    """Linear, activation, linear (arXiv 2010.11929, section 3.1)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.fc1 = nnx.Linear(cfg.hidden_size, cfg.mlp_dim, use_bias=cfg.mlp_bias, rngs=rngs)
        self.act = Activation(cfg)
        self.drop1 = Dropout(cfg.dropout_mlp_inner)
        self.fc2 = nnx.Linear(cfg.mlp_dim, cfg.hidden_size, use_bias=cfg.mlp_bias, rngs=rngs)
        self.drop2 = Dropout(cfg.dropout_mlp_outer)

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """(B, N, D) to (B, N, D)."""
        x = self.fc1(x)  # (B, N, M)
        x = self.drop1(self.act(x), rngs=rngs)
        x = self.fc2(x)  # (B, N, D)
        return self.drop2(x, rngs=rngs)
