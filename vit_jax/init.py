"""Drawing initial values by the recipes of `vit_config.init`."""

import zlib

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_config.init import Draw, initial_draws
from vit_jax.leaves import leaves


def initialise(model: nnx.Module, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
    """Draw every parameter of a model anew, each from a key of its own name."""
    parts = leaves(model)
    draws = initial_draws(
        cfg, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    key = rngs.params()
    for leaf in parts:
        name_key = jax.random.fold_in(key, zlib.crc32(leaf.name.encode()))
        value = leaf.variable.get_value()
        leaf.variable.set_value(sample(draws[leaf.name], name_key, value.shape, value.dtype))


def sample(draw: Draw, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Independent values of a distribution."""
    if draw.kind == "constant":
        return jnp.full(shape, draw.a, dtype)
    if draw.kind == "uniform":
        return jax.random.uniform(key, shape, dtype, draw.a, draw.b)
    if draw.kind == "normal":
        return draw.a + draw.b * jax.random.normal(key, shape, dtype)
    cut = draw.bound / draw.b  # in standard deviations
    return draw.a + draw.b * jax.random.truncated_normal(key, -cut, cut, shape, dtype)
