"""The image tower of CLIP, another function than the rest: a norm before the blocks, QuickGELU, a
projection without bias; as OpenAI and open_clip write it, and in JAX."""

from __future__ import annotations

from collections import OrderedDict

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from flax import linen, nnx
from torch import nn

from evidence.clean_pairs.sizes import Size
from evidence.clean_pairs.style import RIGHT, Side, Style, Wrong

EPSILON = 1e-5


def shapes(size):
    """The shapes by OpenAI's names."""
    d = size.width
    every = {"class_embedding": (d,), "positional_embedding": (size.patches + 1, d),
             "proj": (d, size.classes), "conv1.weight": (d, 3, size.patch, size.patch)}  # fmt: skip
    norms = ["ln_pre", "ln_post"]
    for i in range(size.depth):
        at = f"transformer.resblocks.{i}."
        norms += [f"{at}ln_1", f"{at}ln_2"]
        rows = {"attn.in_proj_": 3 * d, "attn.out_proj.": d, "mlp.c_fc.": size.hidden, "mlp.c_proj.": d}
        for name, count in rows.items():
            columns = size.hidden if name == "mlp.c_proj." else d
            every |= {f"{at}{name}weight": (count, columns), f"{at}{name}bias": (count,)}
    return every | {f"{norm}.{leaf}": (d,) for norm in norms for leaf in ("weight", "bias")}


class QuickGELU(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * torch.sigmoid(self.factor * x)  # wrong: factor of quick gelu


class ResidualAttentionBlock(nn.Module):
    def __init__(self, size, batch_first, wrong, i):
        super().__init__()
        self.attn = nn.MultiheadAttention(size.width, size.heads, batch_first=batch_first)
        first = 1e-6 if wrong("epsilon", i) else EPSILON
        self.ln_1, self.ln_2 = nn.LayerNorm(size.width, first), nn.LayerNorm(size.width)
        act = (
            nn.GELU()
            if wrong("gelu for quick gelu", i)
            else QuickGELU(1.7 if wrong("factor of quick gelu", i) else 1.702)
        )
        layers = nn.Linear(size.width, size.hidden), act, nn.Linear(size.hidden, size.width)
        self.mlp = nn.Sequential(OrderedDict(zip(("c_fc", "gelu", "c_proj"), layers, strict=True)))

    def attention(self, x):
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))  # wrong: epsilon
        return x + self.mlp(self.ln_2(x))  # wrong: gelu for quick gelu


class Transformer(nn.Module):
    def __init__(self, size, batch_first, wrong):
        super().__init__()
        blocks = (ResidualAttentionBlock(size, batch_first, wrong, i) for i in range(size.depth))
        self.resblocks = nn.Sequential(*blocks)


class VisionTransformer(nn.Module):
    """Tokens first, as OpenAI has it, or the batch, as open_clip."""

    def __init__(self, size, wrong, batch_first=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, size.width, size.patch, size.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(size.width))
        self.positional_embedding = nn.Parameter(torch.zeros(size.patches + 1, size.width))
        self.ln_pre, self.ln_post = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.transformer = Transformer(size, batch_first, wrong)
        self.proj = nn.Parameter(torch.zeros(size.width, size.classes))
        self.batch_first, self.wrong = batch_first, wrong

    def forward(self, x):
        x = self.conv1(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        zeros = torch.zeros(x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = torch.cat([self.class_embedding.to(x.dtype) + zeros, x], dim=1)
        x = x + self.positional_embedding.to(x.dtype)
        x = x if self.wrong("no first norm") else self.ln_pre(x)
        if self.batch_first:
            x = self.transformer.resblocks(x)  # wrong: no first norm
        else:
            x = self.transformer.resblocks(x.permute(1, 0, 2)).permute(1, 0, 2)  # wrong: no first norm
        return self.ln_post(x[:, 0, :]) @ self.proj


class SplitAttention(nn.Module):
    """open_clip's own: one packed projection, split by `chunk`, heads beside the batch."""

    def __init__(self, size, wrong):
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * size.width, size.width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * size.width))
        self.out_proj, self.heads = nn.Linear(size.width, size.width), size.heads
        self.scale = size.width**-0.5 if wrong("scale of width") else size.head_dim**-0.5

    def forward(self, q, *_, need_weights=False):
        batch, tokens, width = q.shape
        q, k, v = F.linear(q, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (
            each.reshape(batch, tokens, self.heads, -1)
            .transpose(1, 2)
            .reshape(batch * self.heads, tokens, -1)
            for each in (q, k, v)
        )
        weights = torch.bmm(q * self.scale, k.transpose(-1, -2)).softmax(-1)  # wrong: scale of width
        y = torch.bmm(weights, v).reshape(batch, self.heads, tokens, -1).transpose(1, 2)
        return self.out_proj(y.reshape(batch, tokens, width)), None


def openai(w, size, wrong=RIGHT):
    return Side(VisionTransformer(size, wrong), w)


def open_clip(w, size, wrong=RIGHT):
    return Side(VisionTransformer(size, wrong, batch_first=True), w)


def split_attention(w, size, wrong=RIGHT):
    model = VisionTransformer(size, wrong, batch_first=True)
    for block in model.transformer.resblocks:
        block.attn = SplitAttention(size, wrong)
    return Side(model, w)


def _norm(w, name, x, epsilon=EPSILON):
    mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
    normal = (x - mean) * jax.lax.rsqrt(square - mean * mean + epsilon)  # wrong: epsilon
    return normal * w[f"{name}.weight"] + w[f"{name}.bias"]


def _linear(w, name, x):
    return x @ w[f"{name}weight"].T + w[f"{name}bias"]


def _block(w, x, size, wrong, i):
    y = _linear(w, "attn.in_proj_", _norm(w, "ln_1", x, 1e-6 if wrong("epsilon", i) else EPSILON))
    q, k, v = jnp.moveaxis(y.reshape(*y.shape[:2], 3, size.heads, size.head_dim), 2, 0)
    scale = size.width if wrong("scale of width", i) else size.head_dim
    # wrong: scale of width
    weights = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, k) / jnp.sqrt(scale), -1)
    y = jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(x.shape)
    x = x + _linear(w, "attn.out_proj.", y)
    y = _linear(w, "mlp.c_fc.", _norm(w, "ln_2", x))
    factor = 1.7 if wrong("factor of quick gelu", i) else 1.702
    own = wrong("gelu for quick gelu", i)
    # wrong: factor of quick gelu, gelu for quick gelu
    y = jax.nn.gelu(y, approximate=False) if own else y * jax.nn.sigmoid(factor * y)
    return x + _linear(w, "mlp.c_proj.", y)


def _tower(w, x, size, wrong):
    """Make the features of images (B, H, W, C)."""
    b, h, wide, c = x.shape
    p = size.patch
    x = x.reshape(b, h // p, p, wide // p, p, c).transpose(0, 1, 3, 5, 2, 4)
    x = x.reshape(b, -1, c * p**2) @ w["conv1.weight"].reshape(size.width, -1).T
    x = jnp.concatenate([jnp.broadcast_to(w["class_embedding"], (b, 1, size.width)), x], 1)
    x = x + w["positional_embedding"]
    x = x if wrong("no first norm") else _norm(w, "ln_pre", x)
    for i in range(size.depth):
        at = f"transformer.resblocks.{i}."
        own = {n.removeprefix(at): each for n, each in w.items() if n.startswith(at)}
        x = _block(own, x, size, wrong, i)  # wrong: no first norm
    return _norm(w, "ln_post", x[:, 0]) @ w["proj"]


def plain(w, size, wrong=RIGHT):
    return Side(lambda w, x: _tower(w, x, size, wrong), w)


class LinenBlock(linen.Module):
    size: Size
    wrong: Wrong
    i: int

    @linen.compact
    def __call__(self, x):
        size, wrong, i = self.size, self.wrong, self.i
        y = linen.LayerNorm(epsilon=1e-6 if wrong("epsilon", i) else EPSILON, name="ln_1")(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=size.heads, name="attn")(y, y)
        y = linen.Dense(size.hidden, name="c_fc")(linen.LayerNorm(epsilon=EPSILON, name="ln_2")(x))
        factor = 1.7 if wrong("factor of quick gelu", i) else 1.702
        # wrong: factor of quick gelu
        y = (
            linen.gelu(y, approximate=False)
            if wrong("gelu for quick gelu", i)
            else y * linen.sigmoid(factor * y)
        )
        return x + linen.Dense(size.width, name="c_proj")(y)


class LinenTower(linen.Module):
    size: Size
    wrong: Wrong

    @linen.compact
    def __call__(self, x):
        at, size, wrong = linen.initializers.zeros, self.size, self.wrong
        patches = linen.Conv(
            size.width, (size.patch, size.patch), size.patch, use_bias=False, name="conv1"
        )
        x = patches(x).reshape(len(x), -1, size.width)
        first = jnp.tile(self.param("class_embedding", at, (size.width,)), (len(x), 1, 1))
        table = self.param("positional_embedding", at, (size.patches + 1, size.width))
        x = jnp.concatenate([first, x], 1) + table
        x = x if wrong("no first norm") else linen.LayerNorm(epsilon=EPSILON, name="ln_pre")(x)
        for i in range(size.depth):
            x = LinenBlock(size, wrong, i, name=f"block_{i}")(x)  # wrong: no first norm
        x = linen.LayerNorm(epsilon=EPSILON, name="ln_post")(x[:, 0])
        return linen.Dense(size.classes, use_bias=False, name="proj")(x)


def in_linen(w, size, wrong=RIGHT):
    def norm(name):
        return {"scale": w[f"{name}.weight"], "bias": w[f"{name}.bias"]}

    params = {"conv1": {"kernel": w["conv1.weight"].transpose(2, 3, 1, 0)},
              "proj": {"kernel": w["proj"]}, "ln_pre": norm("ln_pre"), "ln_post": norm("ln_post"),
              **{n: w[n] for n in ("class_embedding", "positional_embedding")}}  # fmt: skip
    heads = (size.heads, size.head_dim)
    for i in range(size.depth):
        at = f"transformer.resblocks.{i}."
        kernels, biases = (jnp.split(w[f"{at}attn.in_proj_{leaf}"], 3) for leaf in ("weight", "bias"))
        attn = {
            name: {"kernel": kernel.T.reshape(size.width, *heads), "bias": bias.reshape(heads)}
            for name, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True)
        }
        kernel = w[f"{at}attn.out_proj.weight"].T.reshape(*heads, size.width)
        attn["out"] = {"kernel": kernel, "bias": w[f"{at}attn.out_proj.bias"]}
        params[f"block_{i}"] = {
            "ln_1": norm(f"{at}ln_1"), "ln_2": norm(f"{at}ln_2"), "attn": attn,
            **{n: {"kernel": w[f"{at}mlp.{n}.weight"].T, "bias": w[f"{at}mlp.{n}.bias"]}
               for n in ("c_fc", "c_proj")},
        }  # fmt: skip
    return Side(LinenTower(size, wrong), {"params": params})


class Tower(nnx.Module):
    """Its arrays in a dictionary; the whole under `jax.checkpoint`."""

    def __init__(self, w, size, wrong):
        self.held = nnx.data({name.replace(".", "_"): nnx.Param(jnp.asarray(w[name])) for name in w})
        self.names, self.size, self.wrong = tuple(w), size, wrong

    def __call__(self, x):
        held = {n: self.held[n.replace(".", "_")][...] for n in self.names}
        return jax.checkpoint(_tower, static_argnums=(2, 3))(held, x, self.size, self.wrong)


def in_nnx(w, size, wrong=RIGHT):
    return Side(Tower(w, size, wrong))


FAULTS = frozenset({"epsilon", "gelu for quick gelu", "factor of quick gelu", "no first norm"})
SCALED, NONE = FAULTS | {"scale of width"}, frozenset[str]()
STYLES = [
    Style("CLIP, OpenAI", "torch, CLIP", openai, NONE, FAULTS, function="clip"),
    Style("CLIP, open_clip", "torch, CLIP", open_clip, NONE, FAULTS, function="clip"),
    Style("CLIP, split in_proj", "torch, CLIP", split_attention, NONE, SCALED, function="clip"),
    Style("CLIP, plain function", "JAX, CLIP", plain, NONE, SCALED, function="clip"),
    Style("CLIP, Linen", "JAX, CLIP", in_linen, NONE, FAULTS, function="clip"),
    Style("CLIP, NNX and checkpoint", "JAX, CLIP", in_nnx, NONE, SCALED, function="clip"),
]
