"""Numbers that the loss cannot see: what moves all keys alike, softmax takes out again.

Their gradient is zero in theory and rounding noise in practice. Adam divides that noise by its root and
makes steps of it that can be as long as any other, in another direction in every implementation, and
harmless. So they are compared by themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vit_config import ViTConfig
from vit_config.parameters import parameters


def invisible(cfg: ViTConfig) -> dict[str, tuple[Any, ...]]:
    """Where the biases of keys are: for each parameter that has some, an index into it."""
    found: dict[str, tuple[Any, ...]] = {}
    D, M = cfg.hidden_size, cfg.mlp_dim
    turned = cfg.rope is not None  # a bias that is turned with its key differs from key to key
    for name, parameter in parameters(cfg).items():
        *_, module, leaf = ("", *name.split("."))[-3:]
        part = name.rpartition(".")[0]
        if part == "attn_pool.kv" and leaf == "bias":
            found[name] = (slice(0, D),)
        elif turned:
            continue
        elif module == "k_norm" and leaf == "bias":
            found[name] = (slice(None),)
        elif cfg.qk_norm:
            continue  # a norm of the keys sees what is added to them
        elif module == "qkv" and leaf == "bias":
            q = cfg.attention_width
            found[name] = (slice(q, q + (parameter.shape[0] - q) // 2),)
        elif leaf == "qkv_bias":  # (q k v, h, d)
            found[name] = (1,)
        elif module == "in_proj" and leaf == "bias":  # MLP, q, k, v
            found[name] = (slice(M + D, M + 2 * D),)
    return found


class Sight:
    """Parts tensors of one schema into what the loss sees and what it does not."""

    def __init__(self, cfg: ViTConfig) -> None:
        self._hidden: dict[str, np.ndarray] = {}
        shapes = parameters(cfg)
        for name, index in invisible(cfg).items():
            mask = np.zeros(shapes[name].shape, bool)
            mask[index] = True
            self._hidden[name] = mask
        self.count = sum(int(mask.sum()) for mask in self._hidden.values())
        """Invisible numbers in all."""

    def seen(self, name: str, value: np.ndarray) -> np.ndarray:
        """What is visible of a parameter, or of what is like it."""
        mask = self._hidden.get(name)
        return value if mask is None else value[~mask]

    def unseen(self, name: str, value: np.ndarray) -> np.ndarray:
        """What is not, empty for most parameters."""
        mask = self._hidden.get(name)
        return value.reshape(-1)[:0] if mask is None else value[mask]
