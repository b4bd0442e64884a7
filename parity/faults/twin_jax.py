"""The JAX twin's operations for faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from parity.faults.twin import TwinName
from vit_config import ViTConfig
from vit_jax.leaves import walk
from vit_jax.mlp import ACTIVATIONS
from vit_jax.model import ViT
from vit_jax.weights import abstract_model


class JaxOperations:
    """See `parity.faults.twin.Twin`."""

    name: TwinName = "jax"
    xp = jnp
    call = "__call__"
    model = ViT

    @property
    def activations(self) -> Mapping[str, Callable[[Any], Any]]:
        """See `Twin`."""
        return ACTIVATIONS

    def abstract_model(self, cfg: ViTConfig) -> ViT:
        """Build a model's tree without values."""
        return abstract_model(cfg)

    def modules(self, model: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
        """Yield every module with its dotted path; the model itself has an empty one."""
        return ((".".join(map(str, path)), module) for path, module in walk(model))

    def weight(self, module: Any) -> jax.Array:
        """Return the weight of a linear layer, a convolution or a norm, in PyTorch's layout."""
        if isinstance(module, (nnx.LayerNorm, nnx.RMSNorm)):
            return module.scale[...]  # type: ignore[index]
        axes = (3, 2, 0, 1) if isinstance(module, nnx.Conv) else (1, 0)
        return module.kernel[...].transpose(axes)

    def bias(self, module: Any) -> jax.Array | None:
        """Return the bias of such a layer, or None."""
        return None if module.bias is None else module.bias[...]

    def epsilon(self, norm: Any) -> float:
        """Return the epsilon of a norm."""
        return norm.epsilon

    def cast(self, x: jax.Array, dtype: str) -> jax.Array:
        """Cast an array to another type, such as ``float32``."""
        return x.astype(dtype)

    def widened(self, x: jax.Array) -> jax.Array:
        """Cast an array to at least float32."""
        return x.astype(jnp.promote_types(x.dtype, jnp.float32))

    def detached(self, x: jax.Array) -> jax.Array:
        """Return the same values, cut off from the gradient."""
        return jax.lax.stop_gradient(x)
