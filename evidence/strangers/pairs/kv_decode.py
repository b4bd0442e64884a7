"""Causal attention over patches: the whole sequence in torch, one token after the other with a carried cache in haiku."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, N = 15, 3, 7
C = D // H


def weights(seed=51):
    d = Draw(seed)
    return {"norm": (d.gain(D), d.vec(D)), "qkv": (d.mat(3 * D, D) * 1.5, d.vec(3 * D)), "out": (d.mat(D, D), d.vec(D))}


def tokens():
    return Draw(52).data(2, N, D)


class Causal(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.load_state_dict({f"{n}.{p}": v for n, pair in w.items() for p, v in zip(("weight", "bias"), pair)})

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, H, C).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def side_torch():
    return Causal(to_torch(weights())).eval(), (to_torch(tokens()),)


class Step(hk.Module):
    """Takes one token and the cache (keys, values, length); gives the new token and the new cache."""

    def __call__(self, cache, x):
        keys, values, length = cache
        y = hk.LayerNorm(-1, True, True, name="norm")(x)
        q, k, v = hk.Linear(3 * D, name="qkv")(y).reshape(3, H, C)
        keys = jax.lax.dynamic_update_slice(keys, k[None], (length, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v[None], (length, 0, 0))
        y = self.read(q, keys, values, jnp.arange(N) <= length)
        return (keys, values, length + 1), x + hk.Linear(D, name="out")(y)

    def read(self, q, keys, values, seen):
        s = jnp.where(seen, jnp.einsum("hc,nhc->hn", q, keys) / C**0.5, -jnp.inf)
        return jnp.einsum("hn,nhc->hc", jax.nn.softmax(s), values).reshape(D)


def decoder(step=Step):
    def run(x):
        empty = (jnp.zeros((N, H, C), x.dtype), jnp.zeros((N, H, C), x.dtype), 0)
        return hk.scan(step(name="step"), empty, x)[1]

    net = hk.without_apply_rng(hk.transform(run))
    w = to_jax(weights())
    params = {"step/norm": dict(zip(("scale", "offset"), w["norm"]))}
    for n in ("qkv", "out"):
        params["step/" + n] = {"w": w[n][0].T, "b": w[n][1]}
    return jax.vmap(net.apply, in_axes=(None, 0)), (params, to_jax(tokens()))


def side_haiku():
    return decoder()
