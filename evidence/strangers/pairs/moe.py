"""A top-2 mixture of experts over tokens: a torch loop with index_add against dense dispatch in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
from torch import nn

from draw import Draw, to_jax, to_torch

D, M, E, T = 11, 13, 5, 9


def weights(seed=361):
    d = Draw(seed)
    return {"gate": d.mat(E, D) * 1.5, "w1": d.mat(E, M, D), "b1": d.vec(E, M), "w2": d.mat(E, D, M), "b2": d.vec(E, D)}


def tokens(cast):
    return (cast(Draw(362).data(T, D)),)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        w = to_torch(weights())
        self.gate = nn.Linear(D, E, bias=False)
        self.gate.weight.data = w["gate"]
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, M), nn.SiLU(), nn.Linear(M, D)) for _ in range(E))
        for i, e in enumerate(self.experts):
            e[0].weight.data, e[0].bias.data, e[2].weight.data, e[2].bias.data = w["w1"][i], w["b1"][i], w["w2"][i], w["b2"][i]

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        top, chosen = probs.topk(2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, slot = torch.where(chosen == i)
            out.index_add_(0, row, top[row, slot, None] * expert(x[row]))
        return x + out


def side_torch():
    return MoE().eval(), tokens(to_torch)


def moe(p, x, normalise=True):
    scores = x @ p["gate"].T
    top, chosen = jax.lax.top_k(scores, 2)
    if normalise:
        gates = jax.nn.softmax(top)
    else:
        gates = jnp.take_along_axis(jax.nn.softmax(scores), chosen, axis=-1)  # !wrong
    combine = (jax.nn.one_hot(chosen, E, dtype=x.dtype) * gates[..., None]).sum(1)
    h = jax.nn.silu(jnp.einsum("td,emd->tem", x, p["w1"]) + p["b1"])
    y = jnp.einsum("tem,edm->ted", h, p["w2"]) + p["b2"]
    return x + jnp.einsum("te,ted->td", combine, y)


def side_dense():
    return moe, (to_jax(weights()), *tokens(to_jax))


def side_wrong():
    return (lambda p, x: moe(p, x, normalise=False)), (to_jax(weights()), *tokens(to_jax))
