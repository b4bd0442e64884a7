"""A small attention block in several hands: torch modules, plain JAX with a fault to order, Linen."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen
from torch import nn

B, N, D, H, M, OUT = 2, 7, 30, 5, 40, 11


class TorchBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D, eps=1e-6), nn.LayerNorm(D, eps=1e-6)
        self.at = nn.MultiheadAttention(D, H, batch_first=True)
        self.f1, self.f2 = nn.Linear(D, M), nn.Linear(M, D)

    def forward(self, x):
        y = self.n1(x)
        x = x + self.at(y, y, y, need_weights=False)[0]
        return x + self.f2(nn.functional.gelu(self.f1(self.n2(x))))


class TorchModel(nn.Module):
    def __init__(self, depth=1):
        super().__init__()
        self.pos = nn.Parameter(torch.zeros(1, N, D))
        self.blocks = nn.ModuleList(TorchBlock() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(D, eps=1e-6), nn.Linear(D, OUT)

    def forward(self, x):
        x = x + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def torch_model(depth=1):
    """A torch model with drawn weights, its weights by name, and an input."""
    rng = np.random.default_rng(3)
    model = TorchModel(depth).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(0.3 * rng.normal(size=p.shape) + (p.ndim == 1)))
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return model, weights, rng.normal(size=(B, N, D)).astype(np.float32)


def norm(x, w, b, eps=1e-6):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    variance = (centred**2).mean(-1, keepdims=True)
    variance = variance + eps
    return centred / jnp.sqrt(variance) * w + b


def attention(x, p, fault):
    qkv = x @ p["at.in_proj_weight"].T + p["at.in_proj_bias"]
    q, k, v = (each.reshape(B, N, H, D // H) for each in jnp.split(qkv, 3, -1))
    if fault == "exchanged":
        q, k = k, q
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    if fault != "unscaled":
        scores = scores * (D // H) ** -0.5
    if fault == "scaled twice":
        scores = scores * (D // H) ** -0.5  # here
    if fault == "causal":
        mask = jnp.arange(N)[:, None] >= jnp.arange(N)
        scores = jnp.where(mask, scores, -1e9)
    weights = jax.nn.softmax(scores, -1)
    if fault == "transposed attention":
        weights = weights.swapaxes(-1, -2)
    x = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(B, N, D)
    w = p["at.out_proj.weight"]
    if fault != "untransposed weight":
        w = w.T
    x = x @ w
    return x + p["at.out_proj.bias"]


def jax_model(fault="", depth=1):
    """The model as a plain function, with one thing wrong in every block."""

    def block(x, p):
        y = norm(x, p["n1.weight"], p["n1.bias"], 1e-5 if fault == "epsilon" else 1e-6)
        y = attention(y, p, fault)
        x = y if fault == "no residual" else x + y
        which = "n1" if fault == "other norm" else "n2"
        y = norm(x, p[which + ".weight"], p["n2.bias"])
        y = y @ p["f1.weight"].T + p["f1.bias"]
        y = jax.nn.gelu(y, approximate=fault == "tanh")
        return x + y @ p["f2.weight"].T + p["f2.bias"]

    def model(params, x):
        if fault == "divided":
            x = x / 255
        pos = params["pos"]
        if fault == "flipped":
            pos = pos[:, ::-1]
        x = x + pos
        if fault == "no position":
            x = x.at[:, 0].add(-params["pos"][0, 0])
        for i in range(depth):
            x = block(
                x, {k.split(".", 2)[2]: v for k, v in params.items() if k.startswith(f"blocks.{i}.")}
            )
        x = norm(x, params["norm.weight"], params["norm.bias"])
        x = x[:, -1 if fault == "last token" else 0]
        return x @ params["head.weight"].T + params["head.bias"]

    return model


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x, _=None):
        y = linen.LayerNorm(epsilon=1e-6)(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=H)(y, y)
        y = linen.Dense(M)(linen.LayerNorm(epsilon=1e-6)(x))
        return x + linen.Dense(D)(linen.gelu(y, approximate=False)), None


class LinenModel(linen.Module):
    depth: int = 1
    scan: bool = False

    @linen.compact
    def __call__(self, x):
        x = x + self.param("pos", linen.initializers.zeros, (1, N, D))
        if self.scan:
            stack = linen.scan(linen.remat(LinenBlock), variable_axes={"params": 0},
                               split_rngs={"params": True}, length=self.depth)  # fmt: skip
            x, _ = stack(name="blocks")(x, None)
        else:
            for i in range(self.depth):
                x, _ = LinenBlock(name=f"block{i}")(x)
        x = linen.LayerNorm(epsilon=1e-6, name="norm")(x)[:, 0]
        return linen.Dense(OUT, name="head")(x)


def linen_variables(w, depth=1, *, scan=False):
    """The torch model's weights as Linen's variables."""

    def dense(name):
        return {"kernel": w[name + ".weight"].T, "bias": w[name + ".bias"]}

    def layer_norm(name):
        return {"scale": w[name + ".weight"], "bias": w[name + ".bias"]}

    def block(i):
        packed, bias = w[f"blocks.{i}.at.in_proj_weight"], w[f"blocks.{i}.at.in_proj_bias"]
        attention = {
            name: {"kernel": packed[j * D : (j + 1) * D].T.reshape(D, H, -1),
                   "bias": bias[j * D : (j + 1) * D].reshape(H, -1)}
            for j, name in enumerate(("query", "key", "value"))
        }  # fmt: skip
        out = dense(f"blocks.{i}.at.out_proj")
        attention["out"] = {"kernel": out["kernel"].reshape(H, D // H, D), "bias": out["bias"]}
        return {
            "LayerNorm_0": layer_norm(f"blocks.{i}.n1"),
            "LayerNorm_1": layer_norm(f"blocks.{i}.n2"),
            "MultiHeadDotProductAttention_0": attention,
            "Dense_0": dense(f"blocks.{i}.f1"),
            "Dense_1": dense(f"blocks.{i}.f2"),
        }

    top = {"pos": w["pos"], "norm": layer_norm("norm"), "head": dense("head")}
    blocks = [block(i) for i in range(depth)]
    if scan:
        return {"params": top | {"blocks": jax.tree.map(lambda *each: np.stack(each), *blocks)}}
    return {"params": top | {f"block{i}": each for i, each in enumerate(blocks)}}
