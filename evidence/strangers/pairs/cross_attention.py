"""Cross attention of latents to tokens: nn.MultiheadAttention against einops."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
from einops import einsum, rearrange
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, KV, L, N = 14, 2, 11, 3, 5


def weights(seed=301):
    d = Draw(seed)
    return {"q_proj_weight": d.mat(D, D) * 1.5, "k_proj_weight": d.mat(D, KV) * 1.5, "v_proj_weight": d.mat(D, KV),
            "in_proj_bias": d.vec(3 * D), "out_proj.weight": d.mat(D, D), "out_proj.bias": d.vec(D)}


def inputs(cast):
    d = Draw(302)
    return cast(d.data(2, L, D)), cast(d.data(2, N, KV))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(D, H, batch_first=True, kdim=KV, vdim=KV)
        self.attn.load_state_dict(to_torch(weights()))

    def forward(self, latents, tokens):
        return latents + self.attn(latents, tokens, tokens, need_weights=False)[0]


def side_torch():
    return Reader().eval(), inputs(to_torch)


def project(p, latents, tokens, heads="b n (h c) -> b n h c"):
    bias = p["in_proj_bias"].reshape(3, D)
    q = einsum(latents, p["q_proj_weight"], "b l i, o i -> b l o") + bias[0]
    k = einsum(tokens, p["k_proj_weight"], "b n i, o i -> b n o") + bias[1]
    v = einsum(tokens, p["v_proj_weight"], "b n i, o i -> b n o") + bias[2]
    return (rearrange(t, heads, h=H) for t in (q, k, v))


def read(p, latents, tokens, scale=(D // H) ** -0.5):
    q, k, v = project(p, latents, tokens)
    weights = jax.nn.softmax(einsum(q * scale, k, "b l h c, b n h c -> b h l n"), axis=-1)
    y = rearrange(einsum(weights, v, "b h l n, b n h c -> b l h c"), "b l h c -> b l (h c)")
    return latents + y @ p["out_proj.weight"].T + p["out_proj.bias"]


def side_einops():
    return read, (to_jax(weights()), *inputs(to_jax))


def side_width_scale():
    return (lambda p, a, b: read(p, a, b, scale=D**-0.5)), (to_jax(weights()), *inputs(to_jax))  # !wrong
