"""Attention over key chunks with a running maximum in a lax.scan, against scaled_dot_product_attention."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

H, N, C, CHUNK = 3, 12, 7, 4


def qkv(cast):
    d = Draw(351)
    return tuple(cast(d.data(2, H, N, C)) for _ in range(3))


def side_torch():
    return F.scaled_dot_product_attention, qkv(to_torch)


def chunked(q, k, v, rescale=True):
    chunks = lambda t: jnp.moveaxis(t.reshape(2, H, N // CHUNK, CHUNK, C), 2, 0)

    def step(carry, kv):
        out, total, top = carry
        s = jnp.einsum("bhqc,bhkc->bhqk", q, kv[0]) * C**-0.5
        new_top = jnp.maximum(top, s.max(-1))
        p = jnp.exp(s - new_top[..., None])
        shrink = jnp.exp(top - new_top)
        total = total * shrink + p.sum(-1)
        if rescale:
            out = out * shrink[..., None] + p @ kv[1]
        else:
            out = out + p @ kv[1]  # !wrong
        return (out, total, new_top), None

    start = (jnp.zeros_like(q), jnp.zeros(q.shape[:-1], q.dtype), jnp.full(q.shape[:-1], -1e30, q.dtype))
    (out, total, _), _ = jax.lax.scan(step, start, (chunks(k), chunks(v)))
    return out / total[..., None]


def side_scan():
    return chunked, qkv(to_jax)


def side_wrong():
    return (lambda q, k, v: chunked(q, k, v, rescale=False)), qkv(to_jax)
