"""A ViT-22B block: attention and MLP in parallel, queries and keys normalised; torch against Flax Linen."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flax.linen as fnn
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, M = 15, 3, 22
C = D // H


def weights(seed=311):
    d = Draw(seed)
    return {"norm.weight": d.gain(D), "norm.bias": d.vec(D), "fused.weight": d.mat(3 * D + M, D), "fused_bias": d.vec(M),
            "q_norm.weight": d.gain(C) * 1.6, "k_norm.weight": d.gain(C) * 0.7, "out.weight": d.mat(D, D + M), "out.bias": d.vec(D)}


def tokens(cast):
    return (cast(Draw(312).data(2, 7, D)),)


class ParallelBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D, eps=1e-6)
        self.fused = nn.Linear(D, 3 * D + M, bias=False)
        self.fused_bias = nn.Parameter(torch.empty(M))
        self.q_norm, self.k_norm = nn.LayerNorm(C, eps=1e-6, bias=False), nn.LayerNorm(C, eps=1e-6, bias=False)
        self.out = nn.Linear(D + M, D)

    def forward(self, x):
        q, k, v, h = self.fused(self.norm(x)).split([D, D, D, M], dim=-1)
        q, k, v = (t.unflatten(-1, (H, C)).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v).transpose(1, 2).flatten(2)
        return x + self.out(torch.cat([a, F.gelu(h + self.fused_bias)], dim=-1))


def side_torch():
    model = ParallelBlock()
    model.load_state_dict(to_torch(weights()))
    return model.eval(), tokens(to_torch)


class Attention(fnn.Module):
    def setup(self):
        self.query, self.key, self.value = (fnn.DenseGeneral((H, C), use_bias=False) for _ in range(3))
        self.q_norm, self.k_norm = (fnn.LayerNorm(epsilon=1e-6, use_bias=False) for _ in range(2))

    def qk(self, y):
        return self.q_norm(self.query(y)), self.k_norm(self.key(y))

    def __call__(self, y):
        q, k = self.qk(y)
        s = jnp.einsum("bqhc,bkhc->bhqk", q, k) * C**-0.5
        return jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(s), self.value(y))


class Block(fnn.Module):
    attention: type = Attention

    @fnn.compact
    def __call__(self, x):
        y = fnn.LayerNorm(epsilon=1e-6, name="norm")(x)
        a = fnn.DenseGeneral(D, axis=(-2, -1), name="out_attn")(self.attention(name="attn")(y))
        h = fnn.gelu(fnn.Dense(M, name="up")(y), approximate=False)
        return x + a + fnn.Dense(D, use_bias=False, name="out_mlp")(h)


def convert():
    w = weights()
    q, k, v, up = jnp.split(w["fused.weight"].T, [D, 2 * D, 3 * D], axis=1)
    head = lambda m: {"kernel": m.reshape(D, H, C)}
    attn = {"query": head(q), "key": head(k), "value": head(v),
            "q_norm": {"scale": w["q_norm.weight"]}, "k_norm": {"scale": w["k_norm.weight"]}}
    out = w["out.weight"].T
    return to_jax({"params": {"norm": {"scale": w["norm.weight"], "bias": w["norm.bias"]}, "attn": attn,
                              "up": {"kernel": up, "bias": w["fused_bias"]},
                              "out_attn": {"kernel": out[:D].reshape(H, C, D), "bias": w["out.bias"]},
                              "out_mlp": {"kernel": out[D:]}}})


def side_linen():
    return Block().apply, (convert(), *tokens(to_jax))
