"""Multi-head self-attention: one reference path in any precision, and named fast kernels."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError, ViTConfig
from vit_jax.drop import Dropout

KERNELS = ("reference", "xla", "cudnn")
"""``reference`` is plain einsum and softmax; the others are `jax.nn.dot_product_attention`, which
computes in float32 even for float64 inputs."""


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, *, kernel: str, drop: Dropout, rngs: nnx.Rngs | None
) -> tuple[jax.Array, jax.Array | None]:
    """softmax(q k^T / sqrt(d)) v (arXiv 1706.03762, equation 1).

    Args:
        q, k, v: (B, N, h, d).
        kernel: one of `KERNELS`.

    Returns:
        The heads' outputs (B, N, h, d), and the weights (B, h, N, N) before dropout - None from a
        fast kernel, which never forms them.

    Raises:
        InputError: an unknown kernel, or a fast one while attention weights are dropped.
    """
    scale = q.shape[-1] ** -0.5
    if kernel == "reference":
        logits = jnp.einsum("bnhd,bmhd->bhnm", q * scale, k)  # (B, h, N, N)
        wide = jnp.promote_types(logits.dtype, jnp.float32)  # never a softmax in half precision
        weights = jax.nn.softmax(logits.astype(wide), axis=-1).astype(v.dtype)
        return jnp.einsum("bhnm,bmhd->bnhd", drop(weights, rngs=rngs), v), weights
    if kernel not in ("xla", "cudnn"):
        raise InputError(f"kernel = {kernel!r}; the attention kernels here are {', '.join(KERNELS)}")
    if rngs is not None and drop.rate:
        raise InputError(
            f"kernel = {kernel!r} cannot drop attention weights, but dropout_attention = {drop.rate};"
            ' use kernel = "reference" or dropout_attention = 0'
        )
    return jax.nn.dot_product_attention(q, k, v, scale=scale, implementation=kernel), None


class Attention(nnx.Module):
    """One q, k, v projection of the whole width, heads, an optional output projection."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        D = cfg.hidden_size
        self.num_heads = cfg.num_heads
        self.add_qkv(cfg, rngs=rngs)
        self.attn_drop = Dropout(cfg.dropout_attention)
        if cfg.attention_out_proj:
            self.proj = nnx.Linear(D, D, use_bias=cfg.attention_out_bias, rngs=rngs)
        else:
            self.proj = None
        self.proj_drop = Dropout(cfg.dropout_attention_out)

    def add_qkv(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projection to q, k, v."""
        self.qkv = nnx.Linear(cfg.hidden_size, 3 * cfg.hidden_size, use_bias=cfg.qkv_bias, rngs=rngs)

    def split_heads(self, x: jax.Array) -> jax.Array:
        """Project (B, N, D) to q, k, v: (3, B, N, h, d)."""
        B, N, _ = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, -1)  # (B, N, 3, h, d)
        return jnp.moveaxis(qkv, 2, 0)  # (3, B, N, h, d)

    def __call__(
        self, x: jax.Array, *, kernel: str = "reference", rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """(B, N, D) to the output (B, N, D) and the attention weights (B, h, N, N) or None."""
        q, k, v = self.split_heads(x)
        y, weights = attend(q, k, v, kernel=kernel, drop=self.attn_drop, rngs=rngs)
        y = y.reshape(x.shape)  # (B, N, D)
        if self.proj is not None:
            y = self.proj(y)
        return self.proj_drop(y, rngs=rngs), weights


class PerHeadAttention(Attention):
    """Heads first: each head's d x d projections see only its own slice of the width."""

    def add_qkv(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create one small projection per head."""
        h, d = cfg.num_heads, cfg.head_dim
        self.qkv_weight = nnx.Param(jnp.zeros((3, h, d, d)))  # q, k, v; head; in; out
        self.qkv_bias = nnx.Param(jnp.zeros((3, h, d))) if cfg.qkv_bias else None

    def split_heads(self, x: jax.Array) -> jax.Array:
        """Project (B, N, D) to q, k, v: (3, B, N, h, d)."""
        B, N, _ = x.shape
        x = x.reshape(B, N, self.num_heads, -1)  # (B, N, h, d)
        qkv = jnp.einsum("bnhi,shio->sbnho", x, self.qkv_weight[...])  # (3, B, N, h, d)
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias[:, None, None]
        return qkv


def make_attention(cfg: ViTConfig, *, rngs: nnx.Rngs) -> Attention:
    """The schema's attention layer."""
    kind = {"fused": Attention, "per_head": PerHeadAttention}[cfg.attention]
    return kind(cfg, rngs=rngs)
