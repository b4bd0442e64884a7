"""PVT attention with keys from a strided convolution on a 4 x 6 grid: torch against Equinox."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, GH, GW, R = 10, 2, 4, 6, 2


def weights(seed=451):
    d = Draw(seed)
    return {"q": (d.mat(D, D) * 1.5, d.vec(D)), "kv": (d.mat(2 * D, D) * 1.5, d.vec(2 * D)), "sr": (d.mat(D, D, R, R, fan=D * R * R), d.vec(D)),
            "norm": (d.gain(D), d.vec(D)), "proj": (d.mat(D, D), d.vec(D))}


def tokens(cast):
    return (cast(Draw(452).data(2, GH * GW, D)),)


class SRAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.proj = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.sr, self.norm = nn.Conv2d(D, D, R, stride=R), nn.LayerNorm(D)
        for n, (w, b) in to_torch(weights()).items():
            getattr(self, n).weight.data, getattr(self, n).bias.data = w, b

    def forward(self, x):
        B, N, _ = x.shape
        q = self.q(x).reshape(B, N, H, D // H).transpose(1, 2)
        y = self.sr(x.transpose(1, 2).reshape(B, D, GH, GW)).reshape(B, D, -1).transpose(1, 2)
        k, v = self.kv(self.norm(y)).reshape(B, -1, 2, H, D // H).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, D))


def side_torch():
    return SRAttention().eval(), tokens(to_torch)


class Attention(eqx.Module):
    q: eqx.nn.Linear
    kv: eqx.nn.Linear
    sr: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    proj: eqx.nn.Linear
    grid: tuple[int, int] = eqx.field(static=True)

    def __init__(self, grid, key):
        a, b, c, d = jax.random.split(key, 4)
        self.q, self.kv, self.proj = eqx.nn.Linear(D, D, key=a), eqx.nn.Linear(D, 2 * D, key=b), eqx.nn.Linear(D, D, key=c)
        self.sr, self.norm, self.grid = eqx.nn.Conv2d(D, D, R, R, key=d), eqx.nn.LayerNorm(D), grid

    def __call__(self, x):
        y = self.sr(x.T.reshape(D, *self.grid)).reshape(D, -1).T
        k, v = jnp.split(jax.vmap(lambda t: self.kv(self.norm(t)))(y), 2, axis=1)
        split = lambda t: t.reshape(-1, H, D // H)
        s = jnp.einsum("qhc,khc->hqk", split(jax.vmap(self.q)(x)), split(k)) * (D // H) ** -0.5
        return jax.vmap(self.proj)(jnp.einsum("hqk,khc->qhc", jax.nn.softmax(s), split(v)).reshape(-1, D))


def model(grid):
    m = Attention(grid, jax.random.key(0))
    for n, (w, b) in to_jax(weights()).items():
        m = eqx.tree_at(lambda m: (getattr(m, n).weight, getattr(m, n).bias), m, (w, b.reshape(getattr(m, n).bias.shape)))
    return m


def side_eqx():
    return jax.vmap(model((GH, GW))), tokens(to_jax)


def side_wrong():
    return jax.vmap(model((GW, GH))), tokens(to_jax)  # !wrong
