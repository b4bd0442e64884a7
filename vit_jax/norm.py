"""Normalisation layers and layer scale."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.rules import normalise


class LayerNorm(nnx.LayerNorm):
    """LayerNorm that computes in at least float32, with a closed-form derivative."""

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Normalise the last axis."""
        y = normalise(x, self.epsilon)
        if self.scale is None or self.bias is None:
            return y.astype(x.dtype)
        scale, bias = (part[...].astype(y.dtype) for part in (self.scale, self.bias))
        return (y * scale + bias).astype(x.dtype)


class RMSNorm(nnx.RMSNorm):
    """RMSNorm that computes in at least float32, with a closed-form derivative."""

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Normalise the last axis."""
        y = normalise(x, self.epsilon, centred=False)
        if self.scale is None:
            return y.astype(x.dtype)
        return (y * self.scale[...].astype(y.dtype)).astype(x.dtype)


def make_norm(cfg: ViTConfig, size: int, *, affine: bool = True, rngs: nnx.Rngs) -> nnx.Module:
    """Build the schema's normalisation over the last axis, of length `size`; without gain and bias if
    not `affine`.

    LayerNorm (arXiv 1607.06450) with the two-pass variance E[(x - E[x])^2], or RMSNorm (arXiv
    1910.07467) without bias.
    """
    if cfg.norm == "layernorm":
        return LayerNorm(size, epsilon=cfg.norm_eps, use_scale=affine, use_bias=affine, rngs=rngs)
    return RMSNorm(size, epsilon=cfg.norm_eps, use_scale=affine, rngs=rngs)


class LayerScale(nnx.Module):
    """A learned gain per channel on a residual branch (arXiv 2103.17239, equation 7)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.gamma = nnx.Param(jnp.full((cfg.hidden_size,), cfg.layer_scale or 0.0))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Scale (..., D) by gamma (D,)."""
        return x * self.gamma[...]


class Identity(nnx.Module):
    """A placeholder where the schema has no layer; it holds nothing and changes nothing."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `x`."""
        return x


def make_layer_scale(cfg: ViTConfig, branch: str, *, rngs: nnx.Rngs) -> nnx.Module:
    """Build the layer scale of a residual branch: ``attention``, ``mlp`` or ``both``; else an
    `Identity`."""
    scaled = cfg.layer_scale is not None and (branch != "mlp" or cfg.layer_scale_on == "both")
    return LayerScale(cfg, rngs=rngs) if scaled else Identity()
