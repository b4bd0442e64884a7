"""Grouped-query attention, four query heads on two key heads: torch against Equinox."""
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

D, H, G, C = 11, 4, 2, 3


def weights(seed=321):
    d = Draw(seed)
    return {"q": d.mat(H * C, D) * 1.5, "k": d.mat(G * C, D) * 1.5, "v": d.mat(G * C, D), "o": d.mat(D, H * C)}


def tokens(cast):
    return (cast(Draw(322).data(3, 5, D)),)


class GQA(nn.Module):
    def __init__(self):
        super().__init__()
        for n, w in to_torch(weights()).items():
            layer = nn.Linear(w.shape[1], w.shape[0], bias=False)
            layer.weight.data = w
            setattr(self, n + "_proj", layer)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, H, C).transpose(1, 2)
        k = self.k_proj(x).view(b, n, G, C).transpose(1, 2).repeat_interleave(H // G, dim=1)
        v = self.v_proj(x).view(b, n, G, C).transpose(1, 2).repeat_interleave(H // G, dim=1)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1))


def side_torch():
    return GQA().eval(), tokens(to_torch)


class Attention(eqx.Module):
    q: jax.Array
    k: jax.Array
    v: jax.Array
    o: jax.Array

    def attend(self, q, k, v):
        q = q.reshape(-1, G, H // G, C)
        s = jnp.einsum("qgrc,kgc->grqk", q, k) * C**-0.5
        return jnp.einsum("grqk,kgc->qgrc", jax.nn.softmax(s), v)

    def __call__(self, x):
        q = (x @ self.q.T).reshape(-1, H, C)
        k, v = ((x @ w.T).reshape(-1, G, C) for w in (self.k, self.v))
        return self.attend(q, k, v).reshape(-1, H * C) @ self.o.T


class TiledAttention(Attention):
    def attend(self, q, k, v):
        k, v = jnp.tile(k, (1, H // G, 1)), jnp.tile(v, (1, H // G, 1))  # !wrong
        s = jnp.einsum("qhc,khc->hqk", q, k) / jnp.sqrt(C)
        return jnp.einsum("hqk,khc->qhc", jax.nn.softmax(s), v)


def side_eqx():
    return jax.vmap(Attention(**to_jax(weights()))), tokens(to_jax)


def side_wrong():
    return eqx.filter_vmap(TiledAttention(**to_jax(weights()))), tokens(to_jax)
