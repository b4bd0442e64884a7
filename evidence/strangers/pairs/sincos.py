"""Two-dimensional sine-cosine positions and pre-logits: the MoCo v3 way in torch, big_vision's in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp
import torch

from draw import Draw, to_jax, to_torch

D, GH, GW = 12, 2, 5


def inputs(cast):
    d = Draw(431)
    return cast(d.mat(7, D)), cast(d.data(2, GH * GW, D))


def table():
    y, x = torch.meshgrid(torch.arange(GH).to(torch.get_default_dtype()), torch.arange(GW).to(torch.get_default_dtype()), indexing="ij")
    omega = 1.0 / 10_000 ** (torch.arange(D // 4).to(x) / (D // 4 - 1))
    x, y = torch.outer(x.flatten(), omega), torch.outer(y.flatten(), omega)
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)


def side_torch():
    return (lambda w, x: (x + table()).tanh() @ w.T), inputs(to_torch)


def posemb(step):
    y, x = jnp.mgrid[:GH, :GW]
    omega = 10_000.0 ** -(jnp.arange(D // 4) / step)
    y, x = (jnp.einsum("m,d->md", a.flatten(), omega) for a in (y, x))
    return jnp.concatenate([jnp.sin(x), jnp.cos(x), jnp.sin(y), jnp.cos(y)], axis=1)


def side_wrong():
    return (lambda w, x: jnp.tanh(x + posemb(D // 4)) @ w.T), inputs(to_jax)  # !wrong


def side_right():
    return (lambda w, x: jnp.tanh(x + posemb(D // 4 - 1)) @ w.T), inputs(to_jax)
