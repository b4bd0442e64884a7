"""The image tower of CLIP, another function than the rest: a norm before the blocks, QuickGELU, a
projection without bias; as OpenAI and open_clip write it, and in JAX."""

from __future__ import annotations

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from flax import linen, nnx
from torch import nn

from evidence.clean_pairs import weights as W
from evidence.clean_pairs.in_torch import loaded

EPSILON = 1e-5
OUT = 13


def draw():
    """Weights in float32, by OpenAI's names."""
    shapes = {"class_embedding": (W.D,), "positional_embedding": (W.TOKENS, W.D), "proj": (W.D, OUT),
              "conv1.weight": (W.D, W.C, W.PATCH, W.PATCH)}  # fmt: skip
    norms = ["ln_pre", "ln_post"]
    for i in range(W.DEPTH):
        at = f"transformer.resblocks.{i}."
        norms += [f"{at}ln_1", f"{at}ln_2"]
        linear = {
            "attn.in_proj_": 3 * W.D,
            "attn.out_proj.": W.D,
            "mlp.c_fc.": W.HIDDEN,
            "mlp.c_proj.": W.D,
        }
        for name, rows in linear.items():
            columns = W.HIDDEN if name == "mlp.c_proj." else W.D
            shapes |= {f"{at}{name}weight": (rows, columns), f"{at}{name}bias": (rows,)}
    shapes |= {f"{norm}.{leaf}": (W.D,) for norm in norms for leaf in ("weight", "bias")}
    rng = np.random.default_rng(13)
    gains = {f"{norm}.weight" for norm in norms}
    return {n: (0.25 * rng.normal(size=s) + (n in gains)).astype(np.float32) for n, s in shapes.items()}


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.attn = nn.MultiheadAttention(W.D, W.HEADS, batch_first=batch_first)
        self.ln_1, self.ln_2 = nn.LayerNorm(W.D), nn.LayerNorm(W.D)
        self.mlp = nn.Sequential(OrderedDict(c_fc=nn.Linear(W.D, W.HIDDEN), gelu=QuickGELU(),
                                             c_proj=nn.Linear(W.HIDDEN, W.D)))  # fmt: skip

    def attention(self, x):
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.resblocks = nn.Sequential(*(ResidualAttentionBlock(batch_first) for _ in range(W.DEPTH)))


class VisionTransformer(nn.Module):
    """Tokens first, as OpenAI has it, or the batch, as open_clip."""

    def __init__(self, batch_first=False):
        super().__init__()
        self.conv1 = nn.Conv2d(W.C, W.D, W.PATCH, W.PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(W.D))
        self.positional_embedding = nn.Parameter(torch.zeros(W.TOKENS, W.D))
        self.ln_pre, self.ln_post = nn.LayerNorm(W.D), nn.LayerNorm(W.D)
        self.transformer = Transformer(batch_first)
        self.proj = nn.Parameter(torch.zeros(W.D, OUT))
        self.batch_first = batch_first

    def forward(self, x):
        x = self.conv1(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        zeros = torch.zeros(x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = torch.cat([self.class_embedding.to(x.dtype) + zeros, x], dim=1)
        x = self.ln_pre(x + self.positional_embedding.to(x.dtype))
        if self.batch_first:
            x = self.transformer.resblocks(x)
        else:
            x = self.transformer.resblocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        return self.ln_post(x[:, 0, :]) @ self.proj


class SplitAttention(nn.Module):
    """open_clip's own: one packed projection, split by `chunk`, heads beside the batch."""

    def __init__(self):
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * W.D, W.D))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * W.D))
        self.out_proj, self.scale = nn.Linear(W.D, W.D), W.HEAD_DIM**-0.5

    def forward(self, q, *_, need_weights=False):
        batch, tokens, width = q.shape
        q, k, v = F.linear(q, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (
            each.reshape(batch, tokens, W.HEADS, -1).transpose(1, 2).reshape(batch * W.HEADS, tokens, -1)
            for each in (q, k, v)
        )
        weights = torch.bmm(q * self.scale, k.transpose(-1, -2)).softmax(-1)
        y = torch.bmm(weights, v).reshape(batch, W.HEADS, tokens, -1).transpose(1, 2)
        return self.out_proj(y.reshape(batch, tokens, width)), None


def openai(w):
    return loaded(VisionTransformer(), w), W.images()


def open_clip(w):
    return loaded(VisionTransformer(batch_first=True), w), W.images()


def split_attention(w):
    model = VisionTransformer(batch_first=True)
    for block in model.transformer.resblocks:
        block.attn = SplitAttention()
    return loaded(model, w), W.images()


def _norm(w, name, x):
    mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
    normal = (x - mean) * jax.lax.rsqrt(square - mean * mean + EPSILON)
    return normal * w[f"{name}.weight"] + w[f"{name}.bias"]


def _linear(w, name, x):
    return x @ w[f"{name}weight"].T + w[f"{name}bias"]


def _block(w, x):
    y = _linear(w, "attn.in_proj_", _norm(w, "ln_1", x))
    q, k, v = jnp.moveaxis(y.reshape(*y.shape[:2], 3, W.HEADS, W.HEAD_DIM), 2, 0)
    weights = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, k) / jnp.sqrt(W.HEAD_DIM), -1)
    y = jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(x.shape)
    x = x + _linear(w, "attn.out_proj.", y)
    y = _linear(w, "mlp.c_fc.", _norm(w, "ln_2", x))
    return x + _linear(w, "mlp.c_proj.", y * jax.nn.sigmoid(1.702 * y))


def _tower(w, x):
    """Make the features of images (B, H, W, C)."""
    b, h, wide, c = x.shape
    x = x.reshape(b, h // W.PATCH, W.PATCH, wide // W.PATCH, W.PATCH, c).transpose(0, 1, 3, 5, 2, 4)
    x = x.reshape(b, -1, c * W.PATCH**2) @ w["conv1.weight"].reshape(W.D, -1).T
    x = jnp.concatenate([jnp.broadcast_to(w["class_embedding"], (b, 1, W.D)), x], 1)
    x = _norm(w, "ln_pre", x + w["positional_embedding"])
    for i in range(W.DEPTH):
        at = f"transformer.resblocks.{i}."
        x = _block({n.removeprefix(at): each for n, each in w.items() if n.startswith(at)}, x)
    return _norm(w, "ln_post", x[:, 0]) @ w["proj"]


def plain(w):
    return _tower, (dict(w), W.images(channels_last=True))


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        y = linen.LayerNorm(epsilon=EPSILON, name="ln_1")(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=W.HEADS, name="attn")(y, y)
        y = linen.Dense(W.HIDDEN, name="c_fc")(linen.LayerNorm(epsilon=EPSILON, name="ln_2")(x))
        return x + linen.Dense(W.D, name="c_proj")(y * linen.sigmoid(1.702 * y))


class LinenTower(linen.Module):
    @linen.compact
    def __call__(self, x):
        at = linen.initializers.zeros
        patches = linen.Conv(W.D, (W.PATCH, W.PATCH), W.PATCH, use_bias=False, name="conv1")(x)
        x = patches.reshape(len(x), -1, W.D)
        first = jnp.tile(self.param("class_embedding", at, (W.D,)), (len(x), 1, 1))
        x = jnp.concatenate([first, x], 1) + self.param("positional_embedding", at, (W.TOKENS, W.D))
        x = linen.LayerNorm(epsilon=EPSILON, name="ln_pre")(x)
        for i in range(W.DEPTH):
            x = LinenBlock(name=f"block_{i}")(x)
        x = linen.LayerNorm(epsilon=EPSILON, name="ln_post")(x[:, 0])
        return linen.Dense(OUT, use_bias=False, name="proj")(x)


def in_linen(w):
    def norm(name):
        return {"scale": w[f"{name}.weight"], "bias": w[f"{name}.bias"]}

    params = {"conv1": {"kernel": w["conv1.weight"].transpose(2, 3, 1, 0)},
              "proj": {"kernel": w["proj"]}, "ln_pre": norm("ln_pre"), "ln_post": norm("ln_post"),
              **{n: w[n] for n in ("class_embedding", "positional_embedding")}}  # fmt: skip
    for i in range(W.DEPTH):
        at = f"transformer.resblocks.{i}."
        attn = {}
        for part, name in enumerate(("query", "key", "value")):
            rows = slice(part * W.D, (part + 1) * W.D)
            kernel, bias = w[f"{at}attn.in_proj_weight"][rows], w[f"{at}attn.in_proj_bias"][rows]
            attn[name] = {
                "kernel": kernel.T.reshape(W.D, W.HEADS, -1),
                "bias": bias.reshape(W.HEADS, -1),
            }
        kernel = w[f"{at}attn.out_proj.weight"].T.reshape(W.HEADS, -1, W.D)
        attn["out"] = {"kernel": kernel, "bias": w[f"{at}attn.out_proj.bias"]}
        params[f"block_{i}"] = {
            "ln_1": norm(f"{at}ln_1"), "ln_2": norm(f"{at}ln_2"), "attn": attn,
            **{n: {"kernel": w[f"{at}mlp.{n}.weight"].T, "bias": w[f"{at}mlp.{n}.bias"]}
               for n in ("c_fc", "c_proj")},
        }  # fmt: skip
    return LinenTower(), {"params": params}, W.images(channels_last=True)


class Tower(nnx.Module):
    """Its arrays in a dictionary; each block under `nnx.remat`."""

    def __init__(self, w):
        self.held = nnx.data({name.replace(".", "_"): nnx.Param(jnp.asarray(w[name])) for name in w})
        self.names = tuple(w)

    def __call__(self, x):
        return jax.checkpoint(_tower)({n: self.held[n.replace(".", "_")][...] for n in self.names}, x)


def in_nnx(w):
    return Tower(w), W.images(channels_last=True)


TORCH = {"CLIP, OpenAI": openai, "CLIP, open_clip": open_clip, "CLIP, split in_proj": split_attention}
JAX = {"CLIP, plain function": plain, "CLIP, Linen": in_linen, "CLIP, NNX and checkpoint": in_nnx}
