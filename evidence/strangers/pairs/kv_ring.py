"""Causal attention with a cache, as plain JAX with a lax.scan over tokens and a batch axis."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from draw import to_jax
from kv_decode import C, D, H, N, tokens, weights


def decode(p, x, wrong=False):
    b = x.shape[0]

    def step(carry, token):
        kv, t = carry
        mu = token.mean(-1, keepdims=True)
        y = (token - mu) / jnp.sqrt(token.var(-1, keepdims=True) + 1e-5) * p["norm"][0] + p["norm"][1]
        q, k, v = jnp.split((y @ p["qkv"][0].T + p["qkv"][1]).reshape(b, 3 * H, C), 3, axis=1)
        slot = jnp.maximum(t - 1, 0) if wrong else t  # !wrong
        kv = kv.at[:, :, slot].set(jnp.stack([k, v]))
        s = jnp.einsum("bhc,bnhc->bhn", q, kv[0]) * C**-0.5
        s = s + jnp.where(jnp.arange(N) > t, -1e30, 0.0)
        y = jnp.einsum("bhn,bnhc->bhc", jax.nn.softmax(s, -1), kv[1]).reshape(b, D)
        return (kv, t + 1), token + y @ p["out"][0].T + p["out"][1]

    start = (jnp.zeros((2, b, N, H, C), x.dtype), 0)
    return jax.lax.scan(step, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)


def side_right():
    return decode, (to_jax(weights()), to_jax(tokens()))


def side_wrong():
    return (lambda p, x: decode(p, x, wrong=True)), (to_jax(weights()), to_jax(tokens()))
