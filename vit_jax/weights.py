"""Parameters as named numpy arrays - timm-style names, PyTorch's layout - and back."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from flax import nnx

from vit_config import TextConfig, ViTConfig, WeightsError
from vit_config.files.weights_file import match_arrays
from vit_jax.leaves import leaves
from vit_jax.model import ViT
from vit_jax.text import TextTower


def to_arrays(model: nnx.Module, state: nnx.State | None = None) -> dict[str, np.ndarray]:
    """Return the parameters of `model` - or a state of the same tree, such as gradients - as arrays."""
    values = dict(nnx.to_flat_state(nnx.state(model, nnx.Param) if state is None else state))
    return {leaf.name: leaf.to_common(values[leaf.path].get_value()) for leaf in leaves(model)}


def to_state(model: nnx.Module, arrays: Mapping[str, np.ndarray]) -> nnx.State:
    """Copy arrays to a parameter state of `model`, which itself stays unchanged.

    Raises:
        WeightsError: an array is missing, unexpected, of another shape or of another type than the
            rest; or float64 while JAX is limited to 32 bits.
    """
    parts = leaves(model)
    dtype = match_arrays({leaf.name: leaf.shape for leaf in parts}, arrays)
    if dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        raise WeightsError(
            "the arrays are float64, but JAX would cut them to float32; set JAX_ENABLE_X64=1, as"
            ' jax.config.update("jax_enable_x64", True) does, or convert them'
        )
    return nnx.from_flat_state(
        [(leaf.path, nnx.Param(from_numpy(leaf.from_common(arrays[leaf.name])))) for leaf in parts]
    )


def abstract_model(cfg: ViTConfig, *, kernel: str = "auto") -> ViT:
    """Build a model with shapes in place of values; nothing is allocated."""
    return _abstract(ViT, cfg, kernel)


def abstract_text(cfg: TextConfig, *, kernel: str = "auto") -> TextTower:
    """Build a text tower with shapes in place of values; nothing is allocated."""
    return _abstract(TextTower, cfg, kernel)


def _abstract(kind: Any, cfg: Any, kernel: str) -> Any:
    def build() -> Any:
        no_key: Any = SimpleNamespace(params=lambda: None)  # draws would be traced, for nothing
        return kind(cfg, kernel=kernel, rngs=no_key)

    return nnx.eval_shape(build)


def from_arrays(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], *, kernel: str = "auto") -> ViT:
    """Build a model with the given parameters, in their type.

    Raises:
        WeightsError: see `to_state`.
    """
    return _filled(abstract_model(cfg, kernel=kernel), arrays)


def text_from_arrays(
    cfg: TextConfig, arrays: Mapping[str, np.ndarray], *, kernel: str = "auto"
) -> TextTower:
    """Build a text tower with the given parameters, in their type.

    Raises:
        WeightsError: see `to_state`.
    """
    return _filled(abstract_text(cfg, kernel=kernel), arrays)


def _filled(model: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    return nnx.merge(nnx.graphdef(model), to_state(model, arrays))


def from_numpy(array: np.ndarray) -> jax.Array:
    """Copy an array to JAX's default device."""
    # jnp.array would compile a program for every shape that it copies: 15 ms each
    return jax.device_put(np.array(array, order="C"), may_alias=False)
