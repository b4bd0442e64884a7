"""Multi-head self-attention."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import Rope, ViTConfig
from vit_config.numerics.tables import count_relative_positions, relative_position_index
from vit_jax.bounded import make_linear
from vit_jax.drop import Dropout
from vit_jax.heads import DifferentialHeads, Heads
from vit_jax.kernels import padding_bias
from vit_jax.linear import add_broadcast
from vit_jax.norm import make_norm
from vit_jax.rope import Rotation, rotate
from vit_jax.rules import split


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


class Attention(Heads, nnx.Module):
    """Multi-head attention with one joint projection to q, k, v and an optional output projection."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        D, width = cfg.hidden_size, cfg.attention_width
        self.num_heads, self.head_dim = cfg.num_heads, cfg.head_dim
        self.num_kv_heads = cfg.kv_heads[index]
        self.pairs = (cfg.rope or Rope()).pairs
        self.add_qkv(cfg, rngs=rngs)
        self.add_qk_norm(cfg, rngs=rngs)
        self.rel_pos_bias = RelativePositionBias(cfg, rngs=rngs) if cfg.rel_pos_bias else None
        self.attn_drop = Dropout(cfg.dropout_attention)
        self.norm = make_norm(cfg, width, rngs=rngs) if cfg.attention_norm else None
        if cfg.attention_out_proj:
            self.proj = make_linear(cfg, width, D, bias=cfg.attention_out_bias, rngs=rngs)
        else:
            self.proj = None
        self.proj_drop = Dropout(cfg.dropout_attention_out)

    def add_qkv(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projection to q, k, v."""
        q_width, kv_width = cfg.attention_width, self.num_kv_heads * cfg.head_dim
        joint_bias = cfg.qkv_bias and cfg.k_bias
        sizes = (q_width, kv_width, kv_width)
        self.qkv = make_linear(cfg, cfg.hidden_size, *sizes, bias=joint_bias, rngs=rngs)
        apart = cfg.qkv_bias and not cfg.k_bias
        self.q_bias = nnx.Param(jnp.zeros((q_width,))) if apart else None
        self.v_bias = nnx.Param(jnp.zeros((kv_width,))) if apart else None

    def split_heads(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Project (B, N, D) to q (B, N, h, d) and k, v (B, N, kv heads, d)."""
        B, N, _ = x.shape
        h, kv, d = self.num_heads, self.num_kv_heads, self.head_dim
        qkv = self.qkv(x)  # (B, N, (h + 2 kv) d), or (B, N, 3, h, d) where a mesh splits the heads
        if qkv.ndim > 3:
            q, k, v = jnp.moveaxis(qkv, 2, 0)  # (B, N, h, d) each
        else:
            q, k, v = split(qkv, [h * d, (h + kv) * d])
        if self.q_bias is not None and self.v_bias is not None:
            q_bias, v_bias = self.q_bias[...], self.v_bias[...]
            q = add_broadcast(q, q_bias.reshape(q.shape[2:]))
            v = add_broadcast(v, v_bias.reshape(v.shape[2:]))
        return q.reshape(B, N, h, d), k.reshape(B, N, kv, d), v.reshape(B, N, kv, d)

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map (B, N, D) to the output (B, N, D) and the attention weights (B, h, N, N) or None.

        Args:
            first: how many queries to compute, those of the first tokens; None is all N.
            valid: (B, N) bool, the tokens that are attended to; None is all.
        """
        q, k, v = self.split_heads(x)
        q, k = self.normalise(q, k)
        v = v if self.v_norm is None else self.v_norm(v)
        if rotation is not None:
            q, k = (rotate(each, rotation, pairs=self.pairs) for each in (q, k))
        bias = None if self.rel_pos_bias is None else self.rel_pos_bias()[:, :first]  # (h, first, N)
        q = q[:, :first]
        bias = bias if valid is None else padding_bias(valid, v.dtype)  # (B, 1, 1, N)
        y, weights = self.mix(q, k, v, bias=bias, rngs=rngs)
        y = y.reshape(*y.shape[:2], -1)  # (B, first, h d)
        y = y if self.norm is None else self.norm(y)
        y = y if self.proj is None else self.proj(y)  # (B, first, D)
        return self.proj_drop(y, rngs=rngs), weights


class PerHeadAttention(Attention):
    """Attention with small d x d projections: each head sees only its own slice of the width."""

    def add_qkv(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create one small projection per head."""
        h, d = cfg.num_heads, cfg.head_dim
        self.qkv_weight = nnx.Param(jnp.zeros((3, h, d, d)))  # q, k, v; head; in; out
        self.qkv_bias = nnx.Param(jnp.zeros((3, h, d))) if cfg.qkv_bias else None

    def split_heads(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Project (B, N, D) to q, k, v, each (B, N, h, d)."""
        B, N, _ = x.shape
        x = x.reshape(B, N, self.num_heads, -1)  # (B, N, h, d)
        qkv = jnp.einsum("bnhi,shio->sbnho", x, self.qkv_weight[...])  # (3, B, N, h, d)
        if self.qkv_bias is not None:
            qkv = add_broadcast(qkv, self.qkv_bias[:, None, None])
        q, k, v = qkv
        return q, k, v


class DifferentialAttention(DifferentialHeads, Attention):
    """Fused attention with differential heads."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        super().__init__(cfg, index, rngs=rngs)
        self.add_lambda(cfg, index, rngs=rngs)

    def split_heads(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Project (B, N, D) to q, k (B, N, 2 h, d / 2) and v (B, N, h, d)."""
        B, N, _ = x.shape
        q, k, v = super().split_heads(x)
        paired = (B, N, 2 * self.num_heads, -1)
        return q.reshape(paired), k.reshape(paired), v


def make_attention(cfg: ViTConfig, index: int, *, rngs: nnx.Rngs) -> Attention:
    """Build the schema's attention layer for block number `index`."""
    kinds = {"fused": Attention, "per_head": PerHeadAttention, "differential": DifferentialAttention}
    return kinds[cfg.attention](cfg, index, rngs=rngs)
