"""The model in JAX with derivatives written by hand, and attention in chunks of keys."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import RIGHT, Side, Style
from evidence.clean_pairs.weights import block as weights_of

CHUNK = 4


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def norm(x, gain, bias, epsilon):
    return _norm(x, gain, bias, epsilon)[0]


def _norm(x, gain, bias, epsilon):
    mean = jnp.mean(x, -1, keepdims=True)
    rate = 1 / jnp.sqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + epsilon)  # wrong: epsilon
    normal = (x - mean) * rate
    return normal * gain + bias, (normal, rate, gain)


def _norm_back(epsilon, kept, g):
    normal, rate, gain = kept
    inner, axes = g * gain, tuple(range(g.ndim - 1))
    x = inner - inner.mean(-1, keepdims=True) - normal * (inner * normal).mean(-1, keepdims=True)
    return x * rate, (g * normal).sum(axes), g.sum(axes)


norm.defvjp(_norm, _norm_back)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gelu(x, wrong):
    return x * jax.scipy.stats.norm.cdf(x)


def _gelu_back(wrong, x, g):
    density = jnp.exp(-0.5 * x * x) / math.sqrt((1 if wrong("custom gradient") else 2) * math.pi)
    return (g * (0.5 * (1 + jax.lax.erf(x / math.sqrt(2))) + x * density),)  # wrong: custom gradient


gelu.defvjp(lambda x, wrong: (gelu(x, wrong), x), _gelu_back)


def chunked(q, k, v, wrong, i):
    """Attention of (B, H, T, D) that sees a few keys at a time."""
    b, h, t, d = q.shape
    padding = -t % CHUNK

    def cut(y):
        y = jnp.pad(y, ((0, 0), (0, 0), (0, padding), (0, 0)))
        return jnp.moveaxis(y.reshape(b, h, -1, CHUNK, d), 2, 0)

    real = (jnp.arange(t + padding) < t).reshape(-1, CHUNK)
    if wrong("padding seen", i):
        real = jnp.ones_like(real)

    def step(carry, chunk):
        largest, total, mixture = carry
        keys, values, real = chunk
        scores = jnp.where(real, q @ keys.mT, -jnp.inf)  # wrong: padding seen
        then = jnp.maximum(largest, scores.max(-1))  # wrong: padding seen
        share, kept = jnp.exp(scores - then[..., None]), jnp.exp(largest - then)  # wrong: padding seen
        total = total * kept + share.sum(-1)  # wrong: padding seen
        return (then, total, mixture * kept[..., None] + share @ values), None  # wrong: padding seen

    start = (jnp.full((b, h, t), -1e30, q.dtype), jnp.zeros((b, h, t), q.dtype), jnp.zeros_like(q))
    (_, total, mixture), _ = jax.lax.scan(step, start, (cut(k), cut(v), real))  # wrong: padding seen
    return mixture / total[..., None]


def _block(p, x, size, wrong=RIGHT, i=None):
    def normed(x, name, epsilon=size.epsilon):
        return norm(x, p[f"{name}.weight"], p[f"{name}.bias"], epsilon)

    y = normed(x, "norm1", 1e-5 if wrong("epsilon", i) else size.epsilon)
    qkv = jnp.einsum("btd,sd->bts", y, p["attn.qkv.weight"]) + p["attn.qkv.bias"]
    q, k, v = jnp.moveaxis(qkv.reshape(*qkv.shape[:2], 3, size.heads, -1).swapaxes(1, 3), 2, 0)
    if size.qk_norm:
        q, k = normed(q, "attn.q_norm"), normed(k, "attn.k_norm")
    y = chunked(J.scaled(q, size, wrong, i), k, v, wrong, i).swapaxes(1, 2).reshape(x.shape)
    x = x + J.gamma(p, y @ p["attn.proj.weight"].T + p["attn.proj.bias"], 1, wrong, i)
    y = normed(x, "norm2") @ p["mlp.fc1.weight"].T + p["mlp.fc1.bias"]
    y = jax.nn.relu(y) if size.relu else gelu(y, wrong)
    return x + J.gamma(p, y @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"], 2, wrong, i)


def model(w, size, wrong=RIGHT):
    """custom_vjp of norm and GELU, attention by a scan over keys."""

    def run(w, x):
        x = J.embed(w, x, size, wrong)
        for i, which in enumerate(J.order(size, wrong)):
            x = _block(weights_of(w, which), x, size, wrong, i)
        x = norm(x, w["norm.weight"], w["norm.bias"], size.epsilon)
        return J.pool(x, size, wrong) @ w["head.weight"].T + w["head.bias"]

    return Side(run, w)


FAULTS = frozenset({
    "epsilon", "custom gradient", "padding seen", "no scale", "scale of width", "float32 scale",
    "detached gamma", "gammas exchanged", "detached positions", "positions shifted", "second token",
    "prefix in mean", "channels reversed",
})  # fmt: skip
STYLES = [Style("custom_vjp, attention in chunks", "JAX, functions", model, faults=FAULTS)]
