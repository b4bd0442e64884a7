"""What the families share: drawn weights, inputs, and weights as JAX's users hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch


def drawn(model: torch.nn.Module) -> torch.nn.Module:
    """The model in evaluation with weights that hide nothing: no zeros, no ones, no equal gains."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        loaded = model.state_dict()
        buffers = [(n, p) for n, p in model.named_buffers() if n in loaded and p.is_floating_point()]
        for name, p in (*model.named_parameters(), *buffers):
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim > 1:
                p.copy_(1.3 * noise * (p.shape[0] / p.numel()) ** 0.5)
            elif "bias" in name or "mean" in name:
                p.copy_(0.2 * noise)
            else:
                p.copy_(1 + 0.2 * noise.clamp(-2, 2))
    return model.eval()


def weights(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Parameters and buffers by torch's names."""
    return {name: each.detach().numpy() for name, each in model.state_dict().items()}


def nested(flat: dict[str, np.ndarray]) -> dict[str, Any]:
    """{"a.b": x} as {"a": {"b": x}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        inner = tree
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return tree


def within(flat: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Those below a prefix, without it."""
    return {name[len(prefix) :]: each for name, each in flat.items() if name.startswith(prefix)}


def normal(*shape: int) -> np.ndarray:
    """Numbers like those of a normalised image."""
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def channels_last(x: np.ndarray) -> np.ndarray:
    """(B, C, H, W) as (B, H, W, C)."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def kernel(weight: np.ndarray) -> np.ndarray:
    """A torch weight (out, in[, h, w]) as JAX holds it: ([h, w,] in, out)."""
    return weight.T if weight.ndim == 2 else weight.transpose(2, 3, 1, 0)


def given(value: np.ndarray) -> Callable[..., jax.Array]:
    """An initialiser of Flax that draws nothing."""
    return lambda *_: jnp.asarray(value)


def layer(flat: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A dense or convolutional layer as Flax holds it."""
    leaves = {"kernel": kernel(flat[name + ".weight"])}
    return leaves | ({"bias": flat[name + ".bias"]} if name + ".bias" in flat else {})


def norm(flat: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A norm as Flax holds it."""
    leaves = {"scale": flat[name + ".weight"]}
    return leaves | ({"bias": flat[name + ".bias"]} if name + ".bias" in flat else {})


def tokens(batch: int, length: int, vocabulary: int) -> np.ndarray:
    """Token numbers below the size of a vocabulary; of a vocabulary of one, a mask of ones."""
    if vocabulary == 1:
        return np.ones((batch, length), np.int64)
    return np.random.default_rng(7).integers(0, vocabulary, (batch, length))
