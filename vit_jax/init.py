"""Drawing initial values by the recipes of `vit_config.init`."""

import zlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_config.init import Draw, initial_draws, rotary_scale
from vit_jax.leaves import Leaf, leaves


def initialise(model: nnx.Module, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
    """Draw every parameter of a model anew, each from a key of its own name."""
    draw_anew(cfg, leaves(model), rngs=rngs)


def draw_anew(cfg: ViTConfig, parts: Sequence[Leaf], *, rngs: nnx.Rngs) -> None:
    """Draw some parameters anew; a bias is drawn with its weight. Without a key nothing is drawn."""
    key = rngs.params()
    if key is None:
        return
    draws = initial_draws(
        cfg, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    for leaf in parts:
        name_key = jax.random.fold_in(key, zlib.crc32(leaf.name.encode()))
        dtype = leaf.variable.get_value().dtype
        shares = draws[leaf.name]
        rows, *behind = leaf.shape or (1,)
        shape = (rows // len(shares), *behind) if leaf.shape else ()
        keys = [name_key] if len(shares) == 1 else jax.random.split(name_key, len(shares))
        drawn = [sample(share, each, shape, dtype) for share, each in zip(shares, keys, strict=True)]
        value = drawn[0] if len(shares) == 1 else jnp.concatenate(drawn)
        leaf.variable.set_value(leaf.from_common(value))


def sample(draw: Draw, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Sample an array of values from a distribution."""
    if draw.kind == "constant":
        return jnp.full(shape, draw.a, dtype)
    if draw.kind == "uniform":
        return jax.random.uniform(key, shape, dtype, draw.a, draw.b)
    if draw.kind == "normal":
        return draw.a + draw.b * jax.random.normal(key, shape, dtype)
    if draw.kind == "rotary":
        scale = jnp.asarray(rotary_scale(draw.a, shape[-1]), dtype)  # (d/4,)
        angle = jax.random.uniform(key, (*shape[1:-1], 1), dtype, 0.0, 2 * jnp.pi)
        cos, sin = scale * jnp.cos(angle), scale * jnp.sin(angle)  # (depth, h, d/4)
        return jnp.stack([jnp.concatenate([cos, -sin], -1), jnp.concatenate([sin, cos], -1)])
    cut = draw.bound / draw.b  # in standard deviations
    return draw.a + draw.b * jax.random.truncated_normal(key, -cut, cut, shape, dtype)
