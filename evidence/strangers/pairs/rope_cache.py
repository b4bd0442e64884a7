"""Decoding with rotary keys in the cache: the whole sequence in torch, a lax.scan over tokens in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, N = 12, 2, 7
C = D // H


def weights(seed=701):
    d = Draw(seed)
    return {"q": d.mat(D, D) * 1.5, "kv": d.mat(2 * D, D) * 1.5, "o": d.mat(D, D)}


def tokens(cast):
    return (cast(Draw(702).data(2, N, D)),)


class RotaryCausal(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.q, self.kv, self.o = (nn.Linear(v.shape[1], v.shape[0], bias=False) for v in w.values())
        self.load_state_dict({k + ".weight": v for k, v in w.items()})
        theta = torch.outer(torch.arange(N).to(w["q"]), 50.0 ** (-torch.arange(0, C, 2).to(w["q"]) / C)).repeat(1, 2)
        self.register_buffer("cos", theta.cos())
        self.register_buffer("sin", theta.sin())

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x):
        split = lambda t: t.unflatten(-1, (H, C)).transpose(1, 2)
        k, v = self.kv(x).chunk(2, -1)
        y = F.scaled_dot_product_attention(self.rotate(split(self.q(x))), self.rotate(split(k)), split(v), is_causal=True)
        return x + self.o(y.transpose(1, 2).flatten(2))


def side_torch():
    return RotaryCausal(to_torch(weights())).eval(), tokens(to_torch)


def rotate(x, t):
    """Turns (..., C) by position t, the two halves as real and imaginary parts."""
    z = jax.lax.complex(x[..., : C // 2], x[..., C // 2:]) * jnp.exp(1j * t * 50.0 ** (-jnp.arange(0, C, 2) / C))
    return jnp.concatenate([z.real, z.imag], -1).astype(x.dtype)


def decode(p, x, wrong=False):
    def step(cache, item):
        t, token = item
        q = (p["q"] @ token).reshape(H, C)
        k, v = (p["kv"] @ token).reshape(2, H, C)
        if wrong:
            cache = {"k": cache["k"].at[t].set(k), "v": cache["v"].at[t].set(v)}
            keys = rotate(cache["k"], t)  # !wrong
        else:
            cache = {"k": cache["k"].at[t].set(rotate(k, t)), "v": cache["v"].at[t].set(v)}
            keys = cache["k"]
        s = jnp.where(jnp.arange(N) <= t, jnp.einsum("hc,nhc->hn", rotate(q, t), keys) * C**-0.5, -jnp.inf)
        y = jnp.einsum("hn,nhc->hc", jax.nn.softmax(s), cache["v"])
        return cache, token + p["o"] @ y.reshape(D)

    empty = jnp.zeros((N, H, C), x.dtype)
    return jax.lax.scan(step, {"k": empty, "v": empty}, (jnp.arange(N), x))[1]


def side_scan():
    return jax.vmap(decode, (None, 0)), (to_jax(weights()), *tokens(to_jax))


def side_wrong():
    return jax.vmap(lambda p, x: decode(p, x, wrong=True), (None, 0)), (to_jax(weights()), *tokens(to_jax))
