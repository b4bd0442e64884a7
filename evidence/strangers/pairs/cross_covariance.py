"""XCiT's cross-covariance attention: torch against a vmapped JAX function."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H = 15, 3
C = D // H


def weights(seed=461):
    d = Draw(seed)
    return {"qkv.weight": d.mat(3 * D, D), "qkv.bias": d.vec(3 * D), "temperature": d.gain(H, 1, 1) * 3, "proj.weight": d.mat(D, D), "proj.bias": d.vec(D)}


def tokens(cast):
    return (cast(Draw(462).data(2, 8, D)),)


class XCA(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.temperature = nn.Parameter(torch.empty(H, 1, 1))

    def forward(self, x):
        B, N, _ = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, H, C).permute(2, 0, 3, 4, 1)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        return self.proj((attn.softmax(-1) @ v).permute(0, 3, 1, 2).reshape(B, N, D))


def side_torch():
    model = XCA()
    model.load_state_dict(to_torch(weights()))
    return model.eval(), tokens(to_torch)


def attend(p, x, wrong=False):
    q, k, v = jnp.moveaxis((x @ p["qkv.weight"].T + p["qkv.bias"]).reshape(-1, 3, H, C), 1, 0)
    q, k = (t / jnp.sqrt(jnp.sum(t**2, axis=0, keepdims=True)) for t in (q, k))
    a = jax.nn.softmax(jnp.einsum("nhi,nhj->hij", q, k) * p["temperature"], axis=-1)
    if wrong:
        y = jnp.einsum("hij,nhi->nhj", a, v)  # !wrong
    else:
        y = jnp.einsum("hij,nhj->nhi", a, v)
    return y.reshape(-1, D) @ p["proj.weight"].T + p["proj.bias"]


def side_jax():
    return jax.vmap(attend, (None, 0)), (to_jax(weights()), *tokens(to_jax))


def side_wrong():
    return jax.vmap(lambda p, x: attend(p, x, wrong=True), (None, 0)), (to_jax(weights()), *tokens(to_jax))
