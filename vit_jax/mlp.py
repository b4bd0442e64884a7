"""The MLP of a block and its activation."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.bounded import make_linear
from vit_jax.drop import Dropout
from vit_jax.norm import make_norm
from vit_jax.rules import gelu, split

ACTIVATIONS = {
    "gelu": gelu,  # with erf
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "silu": jax.nn.silu,
    "relu": lambda x: jnp.maximum(x, 0),
}


class Activation(nnx.Module):
    """The schema's activation, as a module so that its output can be recorded."""

    def __init__(self, cfg: ViTConfig):
        self.kind = cfg.act

    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the activation elementwise."""
        return ACTIVATIONS[self.kind](x)


class Mlp(nnx.Module):
    """An MLP: linear, activation, linear (arXiv 2010.11929, section 3.1)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.add_hidden(cfg, rngs=rngs)
        self.act = Activation(cfg)
        self.drop1 = Dropout(cfg.dropout_mlp_inner)
        self.norm = make_norm(cfg, cfg.mlp_dim, rngs=rngs) if cfg.mlp_norm else None
        self.fc2 = make_linear(cfg, cfg.mlp_dim, cfg.hidden_size, bias=cfg.mlp_bias, rngs=rngs)
        self.drop2 = Dropout(cfg.dropout_mlp_outer)

    def add_hidden(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projection to the hidden layer."""
        self.fc1 = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias, rngs=rngs)

    def hidden(self, x: jax.Array) -> jax.Array:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        return self.act(self.fc1(x))

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Map (B, N, D) to (B, N, D)."""
        x = self.drop1(self.hidden(x), rngs=rngs)  # (B, N, M)
        x = self.fc2(x if self.norm is None else self.norm(x))  # (B, N, D)
        return self.drop2(x, rngs=rngs)


class SwiGLU(Mlp):
    """An MLP with a gated hidden layer: act(W_g x) * W_x x (arXiv 2002.05202, equation 5)."""

    def add_hidden(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the gate and the value."""
        self.fc1_g = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias, rngs=rngs)
        self.fc1_x = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias, rngs=rngs)

    def hidden(self, x: jax.Array) -> jax.Array:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        return self.act(self.fc1_g(x)) * self.fc1_x(x)


class PackedSwiGLU(Mlp):
    """`SwiGLU` with gate and value in one projection, the gate first."""

    def add_hidden(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the joint projection."""
        self.fc1 = make_linear(cfg, cfg.hidden_size, 2 * cfg.mlp_dim, bias=cfg.mlp_bias, rngs=rngs)

    def hidden(self, x: jax.Array) -> jax.Array:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        gate, value = split(self.fc1(x), 2)  # (B, N, M) each
        return self.act(gate) * value


def make_mlp(cfg: ViTConfig, *, rngs: nnx.Rngs) -> Mlp:
    """Build the schema's MLP."""
    kinds = {"mlp": Mlp, "swiglu": SwiGLU, "swiglu_packed": PackedSwiGLU}
    return kinds[cfg.mlp](cfg, rngs=rngs)
