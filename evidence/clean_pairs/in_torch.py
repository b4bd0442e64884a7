"""The model in PyTorch, in several hands; each function returns what `record` and `diff` are given."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from einops.layers.torch import Rearrange
from torch import nn
from torch.utils.checkpoint import checkpoint

from evidence.clean_pairs import weights as W


def tensors(w):
    return {name: torch.from_numpy(each.copy()) for name, each in w.items()}


def loaded(model, state):
    model.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in state.items()})
    return model.eval()


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(W.C, W.D, W.PATCH, W.PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, W.D))
        self.pos = nn.Parameter(torch.zeros(1, W.TOKENS, W.D))

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos


class MultiheadBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(W.D, W.EPSILON), nn.LayerNorm(W.D, W.EPSILON)
        self.attn = nn.MultiheadAttention(W.D, W.HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(W.D, W.HIDDEN), nn.GELU(), nn.Linear(W.HIDDEN, W.D))

    def forward(self, x):
        y = self.n1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Embedding()
        self.layers = nn.ModuleList(MultiheadBlock() for _ in range(W.DEPTH))
        self.norm, self.head = nn.LayerNorm(W.D, W.EPSILON), nn.Linear(W.D, W.CLASSES)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def outer(w, prefix="embed."):
    return {
        f"{prefix}proj.weight": w["patch_embed.proj.weight"],
        f"{prefix}proj.bias": w["patch_embed.proj.bias"],
        f"{prefix}cls": w["cls_token"],
        f"{prefix}pos": w["pos_embed"],
        **{n: w[n] for n in ("norm.weight", "norm.bias", "head.weight", "head.bias")},
    }


def renamed(w, names):
    """Weights of the blocks by other names; `{}` stands for the block's number."""
    return {
        f"{new.format(i)}.{leaf}": w[f"blocks.{i}.{old}.{leaf}"]
        for i in range(W.DEPTH)
        for old, new in names.items()
        for leaf in ("weight", "bias")
    }


def multihead(w):
    """nn.MultiheadAttention."""
    state = outer(w) | renamed(w, {"norm1": "layers.{}.n1", "norm2": "layers.{}.n2",
                                   "attn.proj": "layers.{}.attn.out_proj",
                                   "mlp.fc1": "layers.{}.mlp.0",
                                   "mlp.fc2": "layers.{}.mlp.2"})  # fmt: skip
    for i in range(W.DEPTH):
        state[f"layers.{i}.attn.in_proj_weight"] = w[f"blocks.{i}.attn.qkv.weight"]
        state[f"layers.{i}.attn.in_proj_bias"] = w[f"blocks.{i}.attn.qkv.bias"]
    return loaded(Multihead(), state), W.images()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Embedding()
        layer = nn.TransformerEncoderLayer(W.D, W.HEADS, W.HIDDEN, 0.0, "gelu", W.EPSILON,
                                           batch_first=True, norm_first=True)  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, W.DEPTH, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(W.D, W.EPSILON), nn.Linear(W.D, W.CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.encoder(self.embed(x)))[:, 0])


def encoder_layer(w):
    """nn.TransformerEncoderLayer."""
    at = "encoder.layers.{}."
    state = outer(w) | renamed(w, {"norm1": at + "norm1", "norm2": at + "norm2",
                                   "attn.proj": at + "self_attn.out_proj",
                                   "mlp.fc1": at + "linear1", "mlp.fc2": at + "linear2"})  # fmt: skip
    for i in range(W.DEPTH):
        state[at.format(i) + "self_attn.in_proj_weight"] = w[f"blocks.{i}.attn.qkv.weight"]
        state[at.format(i) + "self_attn.in_proj_bias"] = w[f"blocks.{i}.attn.qkv.bias"]
    return loaded(Encoder(), state), W.images()


class EinopsAttention(nn.Module):
    """Three projections; heads inside, (d h), where `inside` says so."""

    def __init__(self, inside=False):
        super().__init__()
        self.order = "(d h)" if inside else "(h d)"
        self.q, self.k, self.v, self.out = (nn.Linear(W.D, W.D) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            rearrange(p(x), f"b n {self.order} -> b h n d", h=W.HEADS) for p in (self.q, self.k, self.v)
        )
        weights = torch.einsum("bhid,bhjd->bhij", q * W.HEAD_DIM**-0.5, k).softmax(-1)
        y = torch.einsum("bhij,bhjd->bhid", weights, v)
        return self.out(rearrange(y, f"b h n d -> b n {self.order}"))


class EinopsViT(nn.Module):
    def __init__(self, inside=False):
        super().__init__()
        patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=W.PATCH, q=W.PATCH)
        self.embed = nn.Sequential(patches, nn.Linear(W.C * W.PATCH**2, W.D))
        self.cls = nn.Parameter(torch.zeros(W.D))
        self.pos = nn.Parameter(torch.zeros(W.TOKENS, W.D))
        self.blocks = nn.ModuleList(
            nn.ModuleList([
                nn.LayerNorm(W.D, W.EPSILON), EinopsAttention(inside),
                nn.LayerNorm(W.D, W.EPSILON), nn.Linear(W.D, W.HIDDEN), nn.Linear(W.HIDDEN, W.D),
            ])
            for _ in range(W.DEPTH)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(W.D, W.EPSILON), nn.Linear(W.D, W.CLASSES)

    def forward(self, x):
        x = self.embed(x)
        x = torch.cat((self.cls.expand(x.shape[0], 1, -1), x), dim=1)
        x += self.pos
        for block in self.blocks:
            n1, attention, n2, wide, narrow = block.children()
            x = attention(n1(x)) + x
            x = narrow(F.gelu(wide(n2(x)))) + x
        return self.head(self.norm(x[:, 0]))


def einops_model(w, inside=False):
    """einops and einsum, a linear layer over patches, three projections."""
    kernel = w["patch_embed.proj.weight"].transpose(0, 2, 3, 1).reshape(W.D, -1)
    state = {"embed.1.weight": kernel, "embed.1.bias": w["patch_embed.proj.bias"],
             "cls": w["cls_token"].reshape(-1), "pos": w["pos_embed"][0]}  # fmt: skip
    state |= {n: w[n] for n in ("norm.weight", "norm.bias", "head.weight", "head.bias")}
    state |= renamed(w, {"norm1": "blocks.{}.0", "norm2": "blocks.{}.2", "attn.proj": "blocks.{}.1.out",
                         "mlp.fc1": "blocks.{}.3", "mlp.fc2": "blocks.{}.4"})  # fmt: skip
    order = W.heads_inside if inside else np.asarray
    for i in range(W.DEPTH):
        for leaf in ("weight", "bias"):
            thirds = np.split(w[f"blocks.{i}.attn.qkv.{leaf}"], 3)
            for name, third in zip("qkv", thirds, strict=True):
                state[f"blocks.{i}.1.{name}.{leaf}"] = order(third)
        out = f"blocks.{i}.1.out.weight"
        state[out] = order(state[out].T).T
    return loaded(EinopsViT(inside), state), W.images()


def heads_inside(w):
    """Heads in the order (d h)."""
    return einops_model(w, inside=True)


def forward(w, x):
    x = F.unfold(x, W.PATCH, stride=W.PATCH).transpose(1, 2)
    x = F.linear(x, w["patch_embed.proj.weight"].flatten(1), w["patch_embed.proj.bias"])
    x = torch.cat([w["cls_token"].repeat(x.shape[0], 1, 1), x], 1) + w["pos_embed"]
    for i in range(W.DEPTH):
        p = {n.removeprefix(f"blocks.{i}."): each for n, each in w.items()}
        y = F.layer_norm(x, (W.D,), p["norm1.weight"], p["norm1.bias"], W.EPSILON)
        qkv = F.linear(y, p["attn.qkv.weight"], p["attn.qkv.bias"])
        q, k, v = qkv.unflatten(-1, (3, W.HEADS, W.HEAD_DIM)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(y, p["attn.proj.weight"], p["attn.proj.bias"])
        y = F.layer_norm(x, (W.D,), p["norm2.weight"], p["norm2.bias"], W.EPSILON)
        y = F.linear(y, p["mlp.fc1.weight"], p["mlp.fc1.bias"])
        y = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
        x = x + F.linear(y, p["mlp.fc2.weight"], p["mlp.fc2.bias"])
    x = F.layer_norm(x, (W.D,), w["norm.weight"], w["norm.bias"], W.EPSILON)
    return F.linear(x[:, 0], w["head.weight"], w["head.bias"])


def functional(w):
    """A function of a dictionary of tensors, with fused attention."""
    return forward, (tensors(w), torch.from_numpy(W.images()))


def mapped(w):
    """torch.vmap over single images."""

    def model(w, images):
        return torch.vmap(lambda x: forward(w, x[None])[0])(images)

    return model, (tensors(w), torch.from_numpy(W.images()))


class Checkpointed(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        x = self.model.embed(x)
        for layer in self.model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.model.head(self.model.norm(x)[:, 0])


def checkpointed(w):
    """torch.utils.checkpoint around each block."""
    return Checkpointed(multihead(w)[0]), W.images()


def compiled(w):
    """torch.compile."""
    return torch.compile(einops_model(w)[0]), W.images()


def exported(w):
    """torch.export."""
    model, x = multihead(w)
    return torch.export.export(model, (torch.from_numpy(x),)), x


def scripted(w):
    """torch.jit.trace."""
    model, x = multihead(w)
    return torch.jit.trace(model, torch.from_numpy(x)), x


STYLES = {
    "nn.MultiheadAttention": multihead,
    "nn.TransformerEncoderLayer": encoder_layer,
    "einops": einops_model,
    "einops, (d h) heads": heads_inside,
    "functional torch": functional,
    "torch.vmap": mapped,
    "checkpoint": checkpointed,
    "torch.compile": compiled,
    "torch.export": exported,
    "torch.jit.trace": scripted,
}
