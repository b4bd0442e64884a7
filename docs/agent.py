"""Attention with relative positions in PyTorch, and a first port to JAX: for `parity diff`."""

from functools import partial
from typing import Any

import numpy as np

GRID, WIDTH, HEADS = 4, 12, 2
DRAWN = np.random.default_rng(0)
X = DRAWN.standard_normal((3, GRID * GRID, WIDTH))  # (B, N, C)
PARAMETERS = {
    "qkv": DRAWN.standard_normal((WIDTH, 3 * WIDTH)) * 0.5,
    "rows": DRAWN.standard_normal((2 * GRID - 1, WIDTH // HEADS)),
    "columns": DRAWN.standard_normal((2 * GRID - 1, WIDTH // HEADS)),
    "out": DRAWN.standard_normal((WIDTH, WIDTH)) * 0.5,
}


def original() -> tuple[Any, Any]:
    """The layer in PyTorch, and its input."""
    import torch

    def attention(p, x):
        q, k, v = (x @ p["qkv"]).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        i = torch.arange(GRID)
        index = i[:, None] - i[None, :] + GRID - 1
        grid = q.unflatten(2, (GRID, GRID))
        rows = torch.einsum("bhyxc,ykc->bhyxk", grid, p["rows"][index])
        columns = torch.einsum("bhyxc,xkc->bhyxk", grid, p["columns"][index])
        scores = q @ k.mT * (WIDTH // HEADS) ** -0.5
        scores = scores + (rows[..., :, None] + columns[..., None, :]).reshape(scores.shape)
        y = torch.softmax(scores, -1) @ v
        return x + y.transpose(1, 2).flatten(2) @ p["out"]

    return partial(attention, {k: torch.from_numpy(v) for k, v in PARAMETERS.items()}), torch.from_numpy(
        X
    )


def port() -> tuple[Any, Any]:
    """The layer in JAX as first written, and its input."""
    import jax
    import jax.numpy as jnp

    def attention(p, x):
        q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(*x.shape[:2], 3, HEADS, -1), 2, 0)
        i = jnp.arange(GRID)
        index = i[None, :] - i[:, None] + GRID - 1
        grid = q.reshape(len(x), GRID, GRID, HEADS, -1)
        rows = jnp.einsum("byxhc,ykc->bhyxk", grid, p["rows"][index])
        columns = jnp.einsum("byxhc,xkc->bhyxk", grid, p["columns"][index])
        scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) * WIDTH**-0.5
        scores = scores + (rows[..., :, None] + columns[..., None, :]).reshape(scores.shape)
        y = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(scores), v)
        return x + y.reshape(x.shape) @ p["out"]

    return partial(attention, PARAMETERS), X
