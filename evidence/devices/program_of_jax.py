"""The same small ViT in plain JAX, its blocks scanned."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

HEADS, WIDTH, DEPTH = 3, 48, 2


def plain() -> Any:
    """Blocks, and random weights and tokens."""
    rng = np.random.default_rng(0)
    sizes = {"qkv": (WIDTH, 3 * WIDTH), "proj": (WIDTH, WIDTH), "fc1": (WIDTH, 4 * WIDTH),
             "fc2": (4 * WIDTH, WIDTH)}  # fmt: skip
    weights = {
        name: (rng.normal(size=(DEPTH, *size)) * size[0] ** -0.5).astype(np.float32)
        for name, size in sizes.items()
    }
    return blocks, (weights, rng.normal(size=(2, 20, WIDTH)).astype(np.float32))


def bfloat16() -> Any:
    """In bfloat16."""
    function, inputs = plain()
    return function, jax.tree.map(lambda each: jnp.asarray(each, jnp.bfloat16), inputs)


def masked() -> Any:
    """A causal softmax, whose logits are infinite."""
    tokens = np.random.default_rng(0).normal(size=(9, WIDTH)).astype(np.float32)

    def attend(x: Any) -> Any:
        logits = jnp.where(jnp.tril(jnp.ones((9, 9), bool)), x @ x.T, -jnp.inf)
        return jax.nn.softmax(logits) @ x

    return attend, tokens


def blocks(weights: dict[str, Any], x: Any) -> Any:
    """Compute (B, N, D) from (B, N, D)."""
    return jax.lax.scan(_block, x, weights)[0]


def _block(x: Any, w: Any) -> tuple[Any, None]:
    q, k, v = jnp.moveaxis((_norm(x) @ w["qkv"]).reshape(*x.shape[:2], 3, HEADS, -1), 2, 0)
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v).reshape(x.shape)
    x = x + mixed @ w["proj"]
    return x + jax.nn.gelu(_norm(x) @ w["fc1"], approximate=False) @ w["fc2"], None


def _norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
