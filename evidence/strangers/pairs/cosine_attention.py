"""Swin v2's cosine attention with a learned logit scale: torch against JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import math

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H = 14, 2
C = D // H


def weights(seed=341):
    d = Draw(seed)
    return {"qkv.weight": d.mat(3 * D, D), "q_bias": d.vec(D), "v_bias": d.vec(D),
            "logit_scale": d.data(H, 1, 1, around=2.3, scale=0.3), "proj.weight": d.mat(D, D), "proj.bias": d.vec(D)}


def tokens(cast):
    return (cast(Draw(342).data(2, 6, D)),)


class CosineAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.q_bias, self.v_bias = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(D))
        self.logit_scale = nn.Parameter(torch.empty(H, 1, 1))

    def forward(self, x):
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias), self.v_bias])
        q, k, v = F.linear(x, self.qkv.weight, bias).unflatten(-1, (3, H, C)).permute(2, 0, 3, 1, 4)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(100.0)).exp()
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).flatten(2))


def side_torch():
    model = CosineAttention()
    model.load_state_dict(to_torch(weights()))
    return model.eval(), tokens(to_torch)


def unit(x, axis):
    return x / jnp.linalg.norm(x, axis=axis, keepdims=True)


def attention(p, x, wrong=False):
    b, n, _ = x.shape
    wq, wk, wv = p["qkv.weight"].reshape(3, D, D)
    heads = lambda t: t.reshape(b, n, H, C)
    q, k, v = heads(x @ wq.T + p["q_bias"]), heads(x @ wk.T), heads(x @ wv.T + p["v_bias"])
    axis = -2 if wrong else -1  # !wrong
    s = jnp.einsum("bqhc,bkhc->bhqk", unit(q, axis), unit(k, axis)) * jnp.exp(jnp.minimum(p["logit_scale"], jnp.log(100.0)))
    return jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(s), v).reshape(b, n, D) @ p["proj.weight"].T + p["proj.bias"]


def side_jax():
    return attention, (to_jax(weights()), *tokens(to_jax))


def side_wrong():
    return jax.jit(lambda p, x: attention(p, x, wrong=True)), (to_jax(weights()), *tokens(to_jax))
