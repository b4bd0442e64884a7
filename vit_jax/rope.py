"""Rotary positions: the angles of a grid, and turning queries and keys by them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import Rope, ViTConfig
from vit_config.numerics.rope import coordinates, coordinates_of, frequencies, in_order, rotation_table
from vit_jax.positions import Places


class Rotation(NamedTuple):
    """Sine and cosine of the angle of every pair, each (1 or B, N, 1 or h, d / 2)."""

    sin: jax.Array
    cos: jax.Array


def make_rotation(angles: jax.Array, kept_patches: jax.Array | None) -> Rotation:
    """Build the rotation by angles (1 or h, N, d / 2), or (B, 1 or h, N, d / 2) where images differ, of
    the kept patches (B, n) alone if not None."""
    if angles.ndim == 4:
        angles = jnp.swapaxes(angles, 1, 2)  # (B, N, 1 or h, d/2)
        if kept_patches is not None:
            angles = jnp.take_along_axis(angles, kept_patches[:, :, None, None], axis=1)
        return Rotation(jnp.sin(angles), jnp.cos(angles))
    angles = angles.transpose(1, 0, 2)[None]  # (1, N, 1 or h, d/2)
    if kept_patches is not None:
        angles = angles[0][kept_patches]  # (B, n, 1 or h, d/2)
    return Rotation(jnp.sin(angles), jnp.cos(angles))


def rotate(x: jax.Array, rotation: Rotation, *, pairs: str) -> jax.Array:
    """Turn each pair of values of the patch tokens (arXiv 2104.09864, equation 15).

    Args:
        x: (B, P + N, h, d), queries or keys; the P tokens before the patches stay as they are.
        pairs: ``interleaved``, ``half`` or ``half_of_axis``, see `vit_config.rope.Rope`.
    """
    P = x.shape[1] - rotation.sin.shape[1]
    patches = x[:, P:].astype(rotation.sin.dtype)
    if pairs == "half":
        a, b = jnp.split(patches, 2, axis=-1)  # (B, N, h, d/2)
    elif pairs == "half_of_axis":
        apart = patches.reshape(*patches.shape[:3], 2, 2, -1)  # (B, N, h, axes, halves, d/4)
        a, b = (apart[..., half, :].reshape(*patches.shape[:3], -1) for half in (0, 1))
    else:
        a, b = patches[..., ::2], patches[..., 1::2]
    a, b = a * rotation.cos - b * rotation.sin, b * rotation.cos + a * rotation.sin
    if pairs == "half":
        turned = jnp.concatenate([a, b], axis=-1)
    elif pairs == "half_of_axis":
        apart = [each.reshape(*patches.shape[:3], 2, -1) for each in (a, b)]
        turned = jnp.stack(apart, axis=-2).reshape(patches.shape)
    else:
        turned = jnp.stack([a, b], axis=-1).reshape(patches.shape)
    return jnp.concatenate([x[:, :P], turned.astype(x.dtype)], axis=1)


def axes_of(rope: Rope, places: Places, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Compute the coordinates of patches along both axes, (B, N) each, the first axis first."""
    coordinates = [
        coordinates_of(
            rope, axis, places.coordinates[:, :, axis].astype(dtype), places.grids[:, axis, None]
        )
        for axis in (0, 1)
    ]
    return in_order(rope, *coordinates)


class RotaryPositions(nnx.Module):
    """Rotary positions with the same angles in every block and head."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.rope = cfg.rope or Rope()
        self.head_dim = cfg.head_dim

    def __call__(self, grid: tuple[int, int] | Places, x: jax.Array) -> jax.Array:
        """Compute the angles (1, 1, N, d / 2) of a grid, or (1, B, 1, N, d / 2) of places, in the type
        of `x`, at least float32."""
        wide = jnp.promote_types(x.dtype, jnp.float32)
        if isinstance(grid, Places):
            bands = jnp.asarray(frequencies(self.rope, self.head_dim), wide)
            angles = [each[..., None] * bands for each in axes_of(self.rope, grid, wide)]  # (B, N, d/4)
            return jnp.concatenate(angles, axis=-1)[None, :, None]
        table = rotation_table(self.rope, grid, self.head_dim)  # (N, d/2)
        return jnp.asarray(table, wide)[None, None]


class MixedRotaryPositions(RotaryPositions):
    """Rotary positions with frequencies learned per block and head, of both axes (arXiv 2403.13298)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        super().__init__(cfg, rngs=rngs)
        self.freqs = nnx.Param(jnp.zeros((2, cfg.depth, cfg.num_heads, cfg.head_dim // 2)))

    def __call__(self, grid: tuple[int, int] | Places, x: jax.Array) -> jax.Array:
        """Compute the angles (depth, h, N, d / 2) of a grid, or (depth, B, h, N, d / 2) of places, in
        the type of `x`, at least float32."""
        wide = jnp.promote_types(x.dtype, jnp.float32)
        freqs = self.freqs[...].astype(wide)[:, :, :, None]  # (2, depth, h, 1, d/2)
        if isinstance(grid, Places):
            first, second = (each[:, None, :, None] for each in axes_of(self.rope, grid, wide))
            return first * freqs[0][:, None] + second * freqs[1][:, None]  # (depth, B, h, N, d/2)
        places = jnp.asarray(coordinates(self.rope, grid), wide)  # (N, 2)
        first, second = places[:, 0, None], places[:, 1, None]  # (N, 1)
        return first * freqs[0] + second * freqs[1]


def make_rope(cfg: ViTConfig, *, rngs: nnx.Rngs) -> RotaryPositions | None:
    """Build the schema's rotary positions, if it has any."""
    if cfg.rope is None:
        return None
    kind = MixedRotaryPositions if cfg.rope.kind == "mixed" else RotaryPositions
    return kind(cfg, rngs=rngs)
