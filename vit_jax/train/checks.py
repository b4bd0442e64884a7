"""Checks that refuse batches and kernels the devices cannot run, before anything is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import SingleDeviceSharding

from vit_config import ConfigError, InputError, Recipe, ViTConfig
from vit_config.errors import first_line
from vit_jax.drop import Dropout
from vit_jax.kernels import attend
from vit_jax.train.program import Device


def check_batch_size(recipe: Recipe, num_devices: int) -> None:
    """Refuse a batch that the devices cannot share evenly, in each of the parts it is computed in.

    Raises:
        ConfigError: the devices cannot share it; the message names the nearest sizes that work.
    """
    size, parts = recipe.batch_size, num_devices * recipe.accumulate
    if size % parts:
        below, above = size // parts * parts, -(-size // parts) * parts
        sizes = [str(each) for each in (below, above) if each]
        in_parts = f", each in accumulate = {recipe.accumulate} parts" if recipe.accumulate > 1 else ""
        raise ConfigError(
            f"batch_size = {size} cannot be split evenly over {num_devices} devices{in_parts}; use"
            f" {' or '.join(sizes)}"
        )


def check_kernel(cfg: ViTConfig, recipe: Recipe, devices: Sequence[Device]) -> None:
    """Check a fast attention kernel: compile it and its gradient for one device's share of a batch.

    Raises:
        ConfigError: the device or its libraries do not run it; the message is theirs.
        InputError: the kernel cannot do what the schema asks for.
    """
    if recipe.kernel == "reference":
        return
    tokens = cfg.num_prefix_tokens + cfg.num_patches
    shape = (recipe.batch_size // len(devices), tokens, cfg.num_heads, cfg.head_dim)
    q = jax.ShapeDtypeStruct(shape, jnp.dtype(recipe.dtype))  # k and v are like it

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        drop, rngs = Dropout(cfg.dropout_attention), nnx.Rngs(dropout=0)
        return attend(q, k, v, kernel=recipe.kernel, drop=drop, rngs=rngs)[0].sum()

    try:
        # a sharding, not a default device: those of a preflight are not attached
        on_first = SingleDeviceSharding(devices[0])
        jax.jit(jax.grad(total, argnums=(0, 1, 2)), in_shardings=on_first).lower(q, q, q).compile()
    except InputError:
        raise
    except Exception as error:  # JAX, XLA and cuDNN have no common kind of error for what they lack
        reason = first_line(error).rstrip(".")
        raise ConfigError(
            f'kernel = "{recipe.kernel}" does not run on {devices[0].device_kind} in {recipe.dtype}'
            f' ({reason}); use kernel = "reference" or "xla"'
        ) from None
