"""Parameters that the loss cannot see: softmax cancels whatever moves all keys alike.

Their gradient is zero in theory and round-off in practice. Adam divides that round-off by its root
mean square, so the steps it makes can be as long as any other, differ in direction between
implementations, and are harmless. These parameters are therefore compared separately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vit_config import ViTConfig
from vit_config.parameters import parameters


def invisible(cfg: ViTConfig) -> dict[str, tuple[Any, ...]]:
    """Return an index into each parameter that holds biases of keys which the loss cannot see."""
    indices: dict[str, tuple[Any, ...]] = {}
    D, M = cfg.hidden_size, cfg.mlp_dim
    turned = cfg.rope is not None  # rotated with its key, a bias differs from key to key
    for name, parameter in parameters(cfg).items():
        *_, module, leaf = ("", *name.split("."))[-3:]
        part = name.rpartition(".")[0]
        if part == "attn_pool.kv" and leaf == "bias":
            indices[name] = (slice(0, D),)
        elif turned:
            continue
        elif module == "k_norm" and leaf == "bias":
            indices[name] = (slice(None),)
        elif cfg.qk_norm:
            continue  # a norm of the keys sees a bias added to them
        elif module == "qkv" and leaf == "bias":
            q = cfg.attention_width
            indices[name] = (slice(q, q + (parameter.shape[0] - q) // 2),)
        elif leaf == "qkv_bias":  # (q k v, h, d)
            indices[name] = (1,)
        elif module == "in_proj" and leaf == "bias":  # MLP, q, k, v
            indices[name] = (slice(M + D, M + 2 * D),)
    return indices


class Sight:
    """Splitter of one schema's tensors into the numbers that the loss sees and those it does not."""

    def __init__(self, cfg: ViTConfig) -> None:
        self._hidden: dict[str, np.ndarray] = {}
        shapes = parameters(cfg)
        for name, index in invisible(cfg).items():
            mask = np.zeros(shapes[name].shape, bool)
            mask[index] = True
            self._hidden[name] = mask
        self.count = sum(int(mask.sum()) for mask in self._hidden.values())
        """Number of invisible numbers in all parameters."""

    def seen(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the visible numbers of a parameter, or of a tensor of its shape such as a gradient."""
        mask = self._hidden.get(name)
        return value if mask is None else value[~mask]

    def unseen(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the invisible numbers: an empty array for most parameters."""
        mask = self._hidden.get(name)
        return value.reshape(-1)[:0] if mask is None else value[mask]
