"""Axial rotary attention on a 2 x 3 grid: complex numbers in torch, sines and cosines in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
from torch import nn

from draw import Draw, to_jax, to_torch

H, C, GH, GW = 2, 12, 3, 4
D = H * C


def weights(seed=41):
    d = Draw(seed)
    return {"qkv": d.mat(3 * D, D) * 1.5, "proj": d.mat(D, D), "bias": d.vec(D)}


def tokens():
    return Draw(42).data(2, GH * GW, D)


class RotaryAttention(nn.Module):
    """Pairs are neighbours; the first half of the head turns by column, the second by row."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.proj = nn.Linear(D, D)
        t = torch.arange(GH * GW)
        freqs = 1.0 / 100.0 ** (torch.arange(0, C, 4)[: C // 4].to(torch.get_default_dtype()) / C)
        fx, fy = torch.outer((t % GW).to(freqs), freqs), torch.outer((t // GW).to(freqs), freqs)
        angles = torch.cat([fx, fy], dim=-1)
        self.register_buffer("cis", torch.polar(torch.ones_like(angles), angles))

    def rotate(self, x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(z * self.cis).flatten(-2)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, C)).permute(2, 0, 3, 1, 4)
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / C**0.5
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def side_torch():
    model = RotaryAttention()
    w = to_torch(weights())
    model.load_state_dict({"qkv.weight": w["qkv"], "proj.weight": w["proj"], "proj.bias": w["bias"]}, strict=False)
    return model.eval(), (to_torch(tokens()),)


def angles(column_first=True):
    row, col = jnp.divmod(jnp.arange(GH * GW), GW)
    freqs = 100.0 ** (-jnp.arange(0, C, 4) / C)
    first, second = (col, row) if column_first else (row, col)
    return jnp.concatenate([first[:, None] * freqs, second[:, None] * freqs], -1)


def pairwise(x, theta):
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def attend(p, x, turn=pairwise, theta=None):
    theta = angles() if theta is None else theta
    q, k, v = jnp.einsum("bnd,shcd->sbhnc", x, p["qkv"].reshape(3, H, C, D))
    s = jnp.einsum("bhqc,bhkc->bhqk", turn(q, theta), turn(k, theta)) * C**-0.5
    o = jnp.einsum("bhqk,bhkc->bqhc", jax.nn.softmax(s, -1), v)
    return jnp.einsum("bqhc,dhc->bqd", o, p["proj"].reshape(D, H, C)) + p["bias"]


def side_jax():
    return attend, (to_jax(weights()), to_jax(tokens()))
