"""What the twins are compared with: re-drawn weights, one way to run each twin, and timm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import vit_torch
from parity.measure.redraw import redraw
from parity.porting.reading.libraries.peers import import_timm
from vit_config import ViTConfig, ViTOutput
from vit_jax.functional import get_params, make_merge
from vit_jax.weights import abstract_model as abstract_jax
from vit_jax.weights import from_arrays as jax_from_arrays
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model, from_numpy, to_numpy

EXACT = 1e-12
"""Relative error of a whole tensor that float64 rounding may cause."""

__all__ = [
    "EXACT",
    "Arrays",
    "call_jax",
    "import_timm",
    "nchw",
    "random_images",
    "redrawn",
    "run_both",
    "run_jax",
    "run_torch",
]

Arrays = dict[str, np.ndarray]


def redrawn(cfg: ViTConfig, seed: int = 0) -> Arrays:
    """Every parameter of a schema drawn anew, in float64: no tensor is left at zero or one."""
    return {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, seed) for leaf in leaves(abstract_model(cfg))
    }


def random_images(cfg: ViTConfig, size: int = 2, seed: int = 0) -> np.ndarray:
    """Standard normal images, (B, H, W, C) float64."""
    return np.random.default_rng(seed).standard_normal((size, *cfg.image_size, cfg.in_channels))


def nchw(images: np.ndarray) -> torch.Tensor:
    """(B, H, W, C) as a tensor (B, C, H, W)."""
    return from_numpy(images.transpose(0, 3, 1, 2))


@torch.no_grad()
def run_torch(
    cfg: ViTConfig, arrays: Arrays, images: np.ndarray, *, kernel: str = "reference", **options: Any
) -> ViTOutput:
    """The PyTorch twin's output, in the type of `arrays`, as numpy arrays."""
    dtype = from_numpy(next(iter(arrays.values()))).dtype
    model = vit_torch.from_arrays(cfg, arrays, kernel=kernel)
    return _to_numpy(model(nchw(images).to(dtype), **options))


def run_jax(
    cfg: ViTConfig, arrays: Arrays, images: np.ndarray, *, kernel: str = "reference", **options: Any
) -> ViTOutput:
    """The JAX twin's output, in the type of `arrays`, as numpy arrays."""
    return call_jax(cfg, arrays, lambda model, x: model(x, **options), images, kernel=kernel)


def call_jax(
    cfg: ViTConfig, arrays: Arrays, function: Any, *inputs: np.ndarray, kernel: str = "reference"
) -> Any:
    """``function(model, *inputs)`` compiled, for the JAX twin with these parameters."""
    dtype = next(iter(arrays.values())).dtype
    with jax.enable_x64(dtype == np.float64):
        params = get_params(jax_from_arrays(cfg, arrays))
        merge = make_merge(cfg, abstract_jax(cfg, kernel=kernel))
        compiled = jax.jit(lambda params, *inputs: function(merge(params), *inputs))
        return jax.tree.map(np.asarray, compiled(params, *(jnp.asarray(x, dtype) for x in inputs)))


def run_both(cfg: ViTConfig, arrays: Arrays, images: np.ndarray, **options: Any) -> dict[str, ViTOutput]:
    """Both twins' outputs, by the framework's name."""
    return {
        "jax": run_jax(cfg, arrays, images, **options),
        "torch": run_torch(cfg, arrays, images, **options),
    }


def _to_numpy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_numpy(value)
    if isinstance(value, ViTOutput):
        return ViTOutput(*map(_to_numpy, value))
    return tuple(map(_to_numpy, value)) if isinstance(value, tuple) else value
