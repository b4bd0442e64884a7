"""Dropout, stochastic depth, patch dropout; active only when random streams are passed to the call."""

import jax
import jax.numpy as jnp
from flax import nnx


class Dropout(nnx.Module):
    """Dropout: zero each value with probability `rate`, divide the rest by 1 - rate (JMLR 15:1929)."""

    def __init__(self, rate: float):
        self.rate, self.keep_prob = rate, 1.0 - rate
        self.active = rate > 0.0

    def mask_shape(self, x: jax.Array) -> tuple[int, ...]:
        """Return the mask's shape, one independent decision per value."""
        return x.shape

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Drop from `x` of any shape; without `rngs` return it unchanged."""
        if rngs is None or not self.active:
            return x
        keep = jax.random.bernoulli(rngs.dropout(), self.keep_prob, self.mask_shape(x))
        return jnp.where(keep, x / jnp.asarray(self.keep_prob, x.dtype), jnp.zeros_like(x))


class DropPath(Dropout):
    """Stochastic depth (arXiv 1603.09382): drop a whole residual branch, image by image."""

    def mask_shape(self, x: jax.Array) -> tuple[int, ...]:
        """Return the mask's shape, one decision per image: (B, 1, 1)."""
        return (x.shape[0],) + (1,) * (x.ndim - 1)


class PatchDropout(Dropout):
    """Patch dropout: each image keeps a random choice of its patch tokens (arXiv 2212.00794)."""

    def __init__(self, rate: float, num_prefix_tokens: int):
        super().__init__(rate)
        self.num_prefix_tokens = num_prefix_tokens

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: jax.Array, *, rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, P + N, D) to (B, P + n, D) and the indices (B, n) of the kept patches.

        n is N (1 - rate), rounded down, at least 1; without `rngs`, all are kept and the indices None.
        """
        if rngs is None or not self.active:
            return x, None
        prefix, patches = jnp.split(x, [self.num_prefix_tokens], axis=1)
        B, N, _ = patches.shape
        scores = jax.random.uniform(rngs.dropout(), (B, N))
        kept_patches = jnp.argsort(scores, axis=1)[:, : max(1, int(N * self.keep_prob))]  # (B, n)
        patches = jnp.take_along_axis(patches, kept_patches[:, :, None], axis=1)  # (B, n, D)
        return jnp.concatenate([prefix, patches], axis=1), kept_patches
