"""Pooling: from tokens to the vector that the head reads."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.kernels import attend, padding_bias
from vit_jax.linear import Linear
from vit_jax.mlp import Mlp
from vit_jax.norm import Identity, make_norm
from vit_jax.positions import Places


def mean_of(x: jax.Array, valid: jax.Array | None) -> jax.Array:
    """Return the mean (B, D) of the valid (B, N) of the tokens (B, N, D), or of all if None."""
    if valid is None:
        return x.mean(axis=1)
    dtype = x.dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    x = jnp.where(valid[:, :, None], x.astype(wide), 0)
    count = valid.sum(axis=1)[:, None]
    return (x.sum(axis=1) / (count + (count == 0))).astype(dtype)


class Pool(nnx.Module):
    """Pooling to the class token (with a distillation token, the mean of the two), to the mean of
    the patch tokens - or of all tokens - or to class token and mean side by side."""

    def __init__(self, cfg: ViTConfig):
        self.kind = cfg.pool
        self.num_class_tokens = 1 + cfg.distill_token
        self.first_pooled = 0 if cfg.pool_prefix else cfg.num_prefix_tokens

    def __call__(self, x: jax.Array, *, valid: jax.Array | None = None) -> jax.Array:
        """Pool tokens (B, P + N, D), of which `valid` (B, P + N) count, to (B, D), or to class token and
        mean (B, 2 D)."""
        if self.kind == "class":
            return x[:, : self.num_class_tokens].mean(axis=1)
        first = self.first_pooled
        mean = mean_of(x[:, first:], None if valid is None else valid[:, first:])
        return mean if self.kind == "mean" else jnp.concatenate([x[:, 0], mean], axis=-1)


class AttentionPool(nnx.Module):
    """Attention pooling by a learned query, then an MLP (MAP, arXiv 2106.04560)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        D = cfg.hidden_size
        self.num_heads = cfg.pool_num_heads or cfg.num_heads
        self.first_pooled = 0 if cfg.pool_prefix else cfg.num_prefix_tokens
        self.latent = nnx.Param(jnp.zeros((1, 1, D)))
        self.q = Linear(D, D, rngs=rngs)
        self.kv = Linear(D, 2 * D, rngs=rngs)
        self.proj = Linear(D, D, rngs=rngs)
        self.norm = make_norm(cfg, D, rngs=rngs)
        self.mlp = Mlp(cfg.pool_mlp, rngs=rngs)

    def __call__(self, x: jax.Array, *, valid: jax.Array | None = None) -> jax.Array:
        """Pool tokens (B, P + N, D), of which `valid` (B, P + N) are attended to, to (B, D)."""
        first = self.first_pooled
        x = x[:, first:]
        bias = None if valid is None else padding_bias(valid[:, first:], x.dtype)  # (B, 1, 1, N)
        B, N, D = x.shape
        latent = jnp.broadcast_to(self.latent[...], (B, 1, D))
        q = self.q(latent).reshape(B, 1, self.num_heads, -1)  # (B, 1, h, d)
        kv = self.kv(x).reshape(B, N, 2, self.num_heads, -1)  # (B, N, 2, h, d)
        k, v = kv[:, :, 0], kv[:, :, 1]
        y, _ = attend(q, k, v, bias=bias)
        y = self.proj(y.reshape(B, 1, D))
        y = y + self.mlp(self.norm(y))
        return y[:, 0]


class SoftPool(nnx.Module):
    """Pooling of squares of patches: their mean times sqrt(D), one of T tokens for a language model."""

    def __init__(self, cfg: ViTConfig):
        D, standardise = cfg.hidden_size, cfg.pool_standardise
        self.window, self.gain = cfg.pool_window or 1, D**0.5
        self.std_bias = nnx.Param(jnp.zeros((D,))) if standardise else None
        self.std_scale = nnx.Param(jnp.ones((D,))) if standardise else None

    def __call__(
        self, x: jax.Array, *, grid: tuple[int, int] | Places, valid: jax.Array | None = None
    ) -> jax.Array:
        """Pool tokens (B, N, D) of a grid, or of places of which `valid` (B, N) are no padding, to
        (B, T, D) with T = N / window^2, squares row by row; those of padding alone have no meaning."""
        (B, N, D), k, dtype = x.shape, self.window, x.dtype
        wide = jnp.promote_types(dtype, jnp.float32)
        x = x.astype(wide)
        if isinstance(grid, Places):
            x = x if valid is None else jnp.where(valid[:, :, None], x, 0)
            rows, columns = jnp.moveaxis(grid.coordinates // k, 2, 0)  # (B, N)
            number = rows * (grid.grids[:, 1:] // k) + columns
            squares = jnp.arange(N // k**2)
            inside = (number[:, :, None] == squares).astype(wide)  # (B, N, T)
            y = jnp.einsum("bnt,bnd->btd", inside, x) / k**2
        else:
            gh, gw = grid
            y = x.reshape(B, gh // k, k, gw // k, k, D).mean(axis=(2, 4)).reshape(B, -1, D)
        y = y * self.gain
        if self.std_bias is not None and self.std_scale is not None:
            statistics = (self.std_bias[...], self.std_scale[...])
            bias, scale = (jax.lax.stop_gradient(each).astype(wide) for each in statistics)
            y = (y - bias) * scale
        return y.astype(dtype)


def make_pool(cfg: ViTConfig) -> nnx.Module:
    """Build the schema's pooling; attention pooling is a layer before it and leaves nothing to do."""
    if cfg.pool == "soft":
        return SoftPool(cfg)
    return Identity() if cfg.pool == "map" else Pool(cfg)
