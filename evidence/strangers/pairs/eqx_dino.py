"""A DINOv2-like trunk: register tokens, LayerScale and SwiGLU; torch module against Equinox blocks built by filter_vmap."""
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

D, H, M, DEPTH, REG, TOKENS = 14, 2, 19, 3, 3, 11


def weights(seed=21):
    d = Draw(seed)
    return {
        "cls": d.vec(1, D), "registers": d.vec(REG, D), "pos": d.vec(TOKENS + 1, D),
        "blocks": [{
            "norm1": (d.gain(D), d.vec(D)), "qkv": (d.mat(3 * D, D), d.vec(3 * D)), "proj": (d.mat(D, D), d.vec(D)),
            "ls1": d.gain(D) * 0.4, "norm2": (d.gain(D), d.vec(D)), "w12": (d.mat(2 * M, D), d.vec(2 * M)),
            "w3": (d.mat(D, M), d.vec(D)), "ls2": d.gain(D) * 0.4} for _ in range(DEPTH)],
        "norm": (d.gain(D), d.vec(D)),
    }


def patch_tokens():
    return Draw(22).data(2, TOKENS, D)


class TorchBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.ParameterDict()
        for name, value in w.items():
            for part, v in zip(("weight", "bias"), value if isinstance(value, tuple) else (value,)):
                self.w[f"{name}_{part}"] = nn.Parameter(v)

    def lin(self, name, x):
        return F.linear(x, self.w[name + "_weight"], self.w[name + "_bias"])

    def ln(self, name, x):
        return F.layer_norm(x, (D,), self.w[name + "_weight"], self.w[name + "_bias"], 1e-6)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.lin("qkv", self.ln("norm1", x)).view(b, n, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
        x = x + self.w["ls1_weight"] * self.lin("proj", y)
        gate, value = self.lin("w12", self.ln("norm2", x)).chunk(2, dim=-1)
        return x + self.w["ls2_weight"] * self.lin("w3", F.silu(gate) * value)


class TorchTrunk(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.cls, self.registers, self.pos = (nn.Parameter(w[k]) for k in ("cls", "registers", "pos"))
        self.blocks = nn.ModuleList(TorchBlock(b) for b in w["blocks"])
        self.norm = nn.LayerNorm(D, eps=1e-6)
        self.norm.load_state_dict(dict(zip(("weight", "bias"), w["norm"])))

    def forward(self, x):
        x = torch.cat([self.cls.expand(x.shape[0], 1, D), x], 1) + self.pos
        x = torch.cat([x[:, :1], self.registers.expand(x.shape[0], REG, D), x[:, 1:]], 1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x[:, 0], x[:, 1 + REG:]


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    qkv: eqx.nn.Linear
    proj: eqx.nn.Linear
    ls1: jax.Array
    norm2: eqx.nn.LayerNorm
    w12: eqx.nn.Linear
    w3: eqx.nn.Linear
    ls2: jax.Array

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(D, eps=1e-6), eqx.nn.LayerNorm(D, eps=1e-6)
        self.qkv, self.proj = eqx.nn.Linear(D, 3 * D, key=k[0]), eqx.nn.Linear(D, D, key=k[1])
        self.w12, self.w3 = eqx.nn.Linear(D, 2 * M, key=k[2]), eqx.nn.Linear(M, D, key=k[3])
        self.ls1 = self.ls2 = jnp.full((D,), 1e-5)

    def attend(self, x):
        q, k, v = jnp.split(jax.vmap(self.qkv)(x), 3, axis=-1)
        heads = lambda t: t.reshape(-1, H, D // H)
        p = jax.nn.softmax(jnp.einsum("qhc,khc->hqk", heads(q), heads(k)) * (D // H) ** -0.5, axis=-1)
        return jax.vmap(self.proj)(jnp.einsum("hqk,khc->qhc", p, heads(v)).reshape(-1, D))

    def feed(self, x):
        h = jax.vmap(self.w12)(x)
        return jax.vmap(self.w3)(jax.nn.silu(h[:, :M]) * h[:, M:])

    def __call__(self, x):
        x = x + self.ls1 * self.attend(jax.vmap(self.norm1)(x))
        return x + self.ls2 * self.feed(jax.vmap(self.norm2)(x))


class Trunk(eqx.Module):
    cls: jax.Array
    registers: jax.Array
    pos: jax.Array
    blocks: Block
    norm: eqx.nn.LayerNorm

    def __call__(self, x):
        x = jnp.concatenate([self.cls, x]) + self.pos
        x = jnp.concatenate([x[:1], self.registers, x[1:]])
        arrays, static = eqx.partition(self.blocks, eqx.is_array)
        x, _ = jax.lax.scan(lambda x, a: (eqx.combine(a, static)(x), None), x, arrays)
        x = jax.vmap(self.norm)(x)
        return x[0], x[1 + REG:]


def trunk(block=Block):
    w = to_jax(weights())
    blocks = eqx.filter_vmap(block)(jax.random.split(jax.random.key(0), DEPTH))
    where = lambda b: [leaf for n in ("norm1", "qkv", "proj", "norm2", "w12", "w3")
                       for leaf in (getattr(b, n).weight, getattr(b, n).bias)] + [b.ls1, b.ls2]
    rows = [[v for n in ("norm1", "qkv", "proj", "norm2", "w12", "w3") for v in b[n]] + [b["ls1"], b["ls2"]]
            for b in w["blocks"]]
    blocks = eqx.tree_at(where, blocks, [jnp.stack(column) for column in zip(*rows)])
    norm = eqx.tree_at(lambda n: (n.weight, n.bias), eqx.nn.LayerNorm(D, eps=1e-6), w["norm"])
    return Trunk(w["cls"], w["registers"], w["pos"], blocks, norm)


def side_torch():
    return TorchTrunk(to_torch(weights())).eval(), (to_torch(patch_tokens()),)


def side_eqx():
    return eqx.filter_vmap(trunk()), (to_jax(patch_tokens()),)
