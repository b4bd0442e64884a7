"""Blocks with attention and MLP side by side, behind one norm and one input projection."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.drop import Dropout, DropPath
from vit_jax.heads import DifferentialHeads, Heads
from vit_jax.kernels import padding_bias
from vit_jax.linear import Linear, add_broadcast
from vit_jax.mlp import Activation
from vit_jax.norm import make_layer_scale, make_norm
from vit_jax.rope import Rotation
from vit_jax.rules import split


class ParallelBlock(Heads, nnx.Module):
    """A block with attention and MLP on one residual branch (ViT-22B, arXiv 2302.05442, section 2)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        D, M = cfg.hidden_size, cfg.mlp_dim
        self.num_heads, self.mlp_dim = cfg.num_heads, M
        self.in_norm = make_norm(cfg, D, rngs=rngs)
        self.in_proj = Linear(D, M + 3 * D, use_bias=cfg.qkv_bias, rngs=rngs)
        # where q, k, v have no bias, the MLP's bias is a parameter of its own
        self.mlp_bias = nnx.Param(jnp.zeros((M,))) if cfg.mlp_bias and not cfg.qkv_bias else None
        self.add_qk_norm(cfg, rngs=rngs)
        self.attn_drop = Dropout(cfg.dropout_attention)
        self.mlp_drop = Dropout(cfg.dropout_mlp_inner)
        self.mlp_act = Activation(cfg)
        self.add_out_proj(cfg, rngs=rngs)
        self.ls = make_layer_scale(cfg, "both", rngs=rngs)
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def add_out_proj(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projections back to the width of a token."""
        D, M = cfg.hidden_size, cfg.mlp_dim
        self.attn_out_proj = Linear(D, D, use_bias=cfg.attention_out_bias, rngs=rngs)
        self.mlp_out_proj = Linear(M, D, use_bias=cfg.mlp_bias, rngs=rngs)

    def out_proj_of(self, attended: jax.Array, hidden: jax.Array) -> jax.Array:
        """Project attention's (B, N, D) and the MLP's hidden layer (B, N, M) to one (B, N, D)."""
        return self.attn_out_proj(attended) + self.mlp_out_proj(hidden)

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        B, N, D = x.shape
        M, d = self.mlp_dim, D // self.num_heads
        y = self.in_proj(self.in_norm(x))  # (B, N, M + 3 D)
        hidden, q, k, v = split(y, [M, M + D, M + 2 * D])
        hidden = hidden if self.mlp_bias is None else add_broadcast(hidden, self.mlp_bias[...])
        q, k = (each.reshape(B, N, -1, self.qk_dim(d)) for each in (q, k))
        q, k = self.normalise(q, k)
        q, hidden = q[:, :first], hidden[:, :first]
        v = v.reshape(B, N, self.num_heads, d)
        bias = None if valid is None else padding_bias(valid, v.dtype)  # (B, 1, 1, N)
        attended, weights = self.mix(q, k, v, bias=bias, rngs=rngs)
        hidden = self.mlp_drop(self.mlp_act(hidden), rngs=rngs)  # (B, first, M)
        y = self.out_proj_of(attended.reshape(B, -1, D), hidden)
        return x[:, :first] + self.drop_path(self.ls(y), rngs=rngs), weights


class DifferentialParallelBlock(DifferentialHeads, ParallelBlock):
    """A `ParallelBlock` with differential heads, and one output projection for attention and MLP."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        super().__init__(cfg, index, rngs=rngs)
        self.add_lambda(cfg, index, rngs=rngs)

    def add_out_proj(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the joint projection, attention's columns first."""
        width = cfg.hidden_size + cfg.mlp_dim
        self.out_proj = Linear(width, cfg.hidden_size, use_bias=cfg.attention_out_bias, rngs=rngs)

    def out_proj_of(self, attended: jax.Array, hidden: jax.Array) -> jax.Array:
        """Project attention's (B, N, D) and the MLP's hidden layer (B, N, M) to one (B, N, D)."""
        return self.out_proj(jnp.concatenate([attended, hidden], axis=-1))
