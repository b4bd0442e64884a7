"""DINOv3, another function than the rest: rotary positions of patches alone, keys without biases."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from evidence.clean_pairs import flax_trees as T
from evidence.clean_pairs import in_nnx, weights
from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.in_torch import renamed
from evidence.clean_pairs.style import RIGHT, Side, Style
from parity.porting.reading.libraries.peers import import_timm

EPSILON = 1e-5


def adapt(size):
    """Registers, a layer scale, heads whose width is a multiple of four, square images."""
    head = max(4, size.head_dim // 4 * 4)
    return replace(size, width=size.heads * head, class_token=True, mean=False, epsilon=EPSILON,
                   registers=size.registers or 2, gamma=size.gamma or 1e-5,
                   grid=(size.grid[0], size.grid[0]))  # fmt: skip


def shapes(size):
    """The shapes by timm's names."""
    every = weights.shapes(size)
    del every["pos_embed"]
    for i in range(size.depth):
        at = f"blocks.{i}."
        bias = every.pop(f"{at}attn.qkv.bias")[0] // 3
        every |= {f"{at}attn.q_bias": (bias,), f"{at}attn.v_bias": (bias,)}
        every |= {f"{at}gamma_{n}": every.pop(f"{at}ls{n}.gamma") for n in (1, 2)}
    return every


def in_timm(w, size, wrong=RIGHT):
    """timm's Eva."""
    import_timm()
    from timm.models.eva import Eva

    model = Eva(
        img_size=size.image, patch_size=size.patch, embed_dim=size.width, depth=size.depth,
        num_heads=size.heads, mlp_ratio=(size.hidden + 0.5) / size.width, num_classes=size.classes,
        global_pool="token", qkv_bias=True, init_values=size.gamma, rope_type="dinov3",
        rope_temperature=100, rope_rotate_half=True, use_rot_pos_emb=True, use_abs_pos_emb=False,
        num_reg_tokens=size.registers, use_fc_norm=False, dynamic_img_size=True,
        norm_layer=partial(torch.nn.LayerNorm, eps=size.epsilon),
    )  # fmt: skip
    return Side(model, w)


class Classified(torch.nn.Module):
    """The backbone and a classifier of the class token."""

    def __init__(self, backbone, size):
        super().__init__()
        self.backbone, self.head = backbone, torch.nn.Linear(size.width, size.classes)

    def forward(self, x):
        return self.head(self.backbone(x).last_hidden_state[:, 0])


def in_transformers(w, size, wrong=RIGHT):
    """DINOv3ViTModel."""
    import_timm()
    import transformers

    cfg = transformers.DINOv3ViTConfig(
        hidden_size=size.width, num_hidden_layers=size.depth, num_attention_heads=size.heads,
        intermediate_size=size.hidden, image_size=size.image[0], patch_size=size.patch,
        layer_norm_eps=size.epsilon, num_register_tokens=size.registers, layerscale_value=size.gamma,
        query_bias=True, key_bias=False, value_bias=True, proj_bias=True, mlp_bias=True,
    )  # fmt: skip
    at = "backbone.model.layer.{}."
    names = {"norm1": "norm1", "norm2": "norm2", "attn.proj": "attention.o_proj",
             "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj"}  # fmt: skip
    state = renamed(w, size, {old: at + new for old, new in names.items()})
    for i in range(size.depth):
        own, there = f"blocks.{i}.", at.format(i)
        thirds = w[f"{own}attn.qkv.weight"].chunk(3)
        state |= {f"{there}attention.{n}_proj.weight": t for n, t in zip("qkv", thirds, strict=True)}
        state |= {f"{there}attention.{n}_proj.bias": w[f"{own}attn.{n}_bias"] for n in "qv"}
        state |= {f"{there}layer_scale{n}.lambda1": w[f"{own}gamma_{n}"] for n in (1, 2)}
    pairs = {"backbone.embeddings.patch_embeddings": "patch_embed.proj", "backbone.norm": "norm",
             "head": "head"}  # fmt: skip
    for leaf in ("weight", "bias"):
        state |= {f"{new}.{leaf}": w[f"{old}.{leaf}"] for new, old in pairs.items()}
    state |= {"backbone.embeddings.cls_token": w["cls_token"],
              "backbone.embeddings.register_tokens": w["reg_token"],
              "backbone.embeddings.mask_token": torch.zeros_like(w["cls_token"])}  # fmt: skip
    return Side(Classified(transformers.DINOv3ViTModel(cfg), size), state)


def table(size):
    """Sines and cosines of the patches (N, D), in float32 as both libraries have them."""
    rows, columns = (
        (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(count) for count in size.grid
    )
    places = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2) * 2 - 1
    quarter = size.head_dim // 4
    periods = np.float32(100) ** (np.arange(quarter, dtype=np.float32) / np.float32(quarter))
    angles = np.float32(2 * math.pi) * places[:, :, None] / periods
    angles = np.tile(angles.reshape(len(places), -1), 2)
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def turned(x, size):
    """Rotate the patches of (B, H, T, D)."""
    sines, cosines = (jnp.asarray(each, x.dtype) for each in table(size))
    front, x = x[:, :, : size.prefix], x[:, :, size.prefix :]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([front, x * cosines + jnp.concatenate([-b, a], -1) * sines], 2)


def mixed(q, k, v, size):
    """The heads' mixtures, of (B, T, H, D)."""
    q, k, v = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
    q, k = turned(q, size) * size.head_dim**-0.5, turned(k, size)
    return jnp.swapaxes(jax.nn.softmax(q @ k.mT) @ v, 1, 2)


def front(w, x):
    """Tokens in front of those of patches."""
    held = [jnp.broadcast_to(w[n], (len(x), *w[n].shape[1:])) for n in ("cls_token", "reg_token")]
    return jnp.concatenate([*held, x], 1)


def _block(p, x, size):
    y = J.norm(x, p, "norm1", size)
    none = jnp.zeros_like(p["attn.q_bias"])
    y = y @ p["attn.qkv.weight"].T + jnp.concatenate([p["attn.q_bias"], none, p["attn.v_bias"]])
    q, k, v = jnp.moveaxis(y.reshape(*x.shape[:2], 3, size.heads, size.head_dim), 2, 0)
    y = mixed(q, k, v, size).reshape(x.shape) @ p["attn.proj.weight"].T + p["attn.proj.bias"]
    x = x + y * p["gamma_1"]
    return x + J.mlp(p, J.norm(x, p, "norm2", size), size) * p["gamma_2"]


def plain(w, size, wrong=RIGHT):
    """A function of a dictionary."""

    def model(w, x):
        x = front(w, J.tokens(w, x, size))
        for i in range(size.depth):
            x = _block(weights.block(w, i), x, size)
        return J.head(w, x, size)

    return Side(model, w)


class Block(nnx.Module):
    """A Linear each for q, k, v."""

    q: nnx.Linear
    k: nnx.Linear
    v: nnx.Linear
    out: nnx.Linear
    fc1: nnx.Linear
    fc2: nnx.Linear

    def __init__(self, p, size):
        self.size = size
        self.norm1, self.norm2 = (
            in_nnx.layer_norm(p, n, size.epsilon, None) for n in ("norm1", "norm2")
        )
        width, rngs = size.width, nnx.Rngs(0)
        biases = {n: p.get(f"attn.{n}_bias") for n in "qkv"}
        for name, rows in zip("qkv", jnp.split(p["attn.qkv.weight"], 3), strict=True):
            layer = nnx.Linear(width, width, use_bias=biases[name] is not None, rngs=rngs)
            layer.kernel = nnx.Param(rows.T)
            if biases[name] is not None:
                layer.bias = nnx.Param(biases[name])
            setattr(self, name, layer)
        names = {"out": "attn.proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
        for name, old in names.items():
            setattr(self, name, in_nnx.linear(p, old, None))
        self.gamma1, self.gamma2 = nnx.Param(p["gamma_1"]), nnx.Param(p["gamma_2"])

    def __call__(self, x):
        size, y = self.size, self.norm1(x)
        heads = (*x.shape[:2], size.heads, size.head_dim)
        q, k, v = (layer(y).reshape(heads) for layer in (self.q, self.k, self.v))
        x = x + self.out(mixed(q, k, v, size).reshape(x.shape)) * self.gamma1[...]
        y = self.fc2(nnx.gelu(self.fc1(self.norm2(x)), approximate=False))
        return x + y * self.gamma2[...]


class NnxViT(nnx.Module):
    def __init__(self, w, size):
        self.size, step = size, (size.patch, size.patch)
        self.patches = nnx.Conv(3, size.width, step, step, padding="VALID", rngs=nnx.Rngs(0))
        kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
        in_nnx.set_arrays(self.patches, kernel=kernel, bias=w["patch_embed.proj.bias"])
        self.cls_token, self.reg_token = nnx.Param(w["cls_token"]), nnx.Param(w["reg_token"])
        self.layers = nnx.List([Block(p, size) for p in T.layers(w, size, lambda p: p)])
        self.norm = in_nnx.layer_norm(w, "norm", size.epsilon, None)
        self.head = in_nnx.linear(w, "head", None)

    def __call__(self, x):
        x = self.patches(x)
        x = x.reshape(len(x), -1, self.size.width)
        x = front({n: getattr(self, n)[...] for n in ("cls_token", "reg_token")}, x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def in_nnx_(w, size, wrong=RIGHT):
    """NNX."""
    return Side(NnxViT(w, size))


NONE: frozenset[str] = frozenset()
MORE: dict[str, Any] = {"accepts": NONE, "function": "dinov3", "adapt": adapt, "narrow": True}
STYLES = [
    Style("DINOv3, timm", "torch, SigLIP and DINOv3", in_timm, half=False, **MORE),
    Style("DINOv3, transformers", "torch, SigLIP and DINOv3", in_transformers, **MORE),
    Style("DINOv3, plain function", "JAX, SigLIP and DINOv3", plain, **MORE),
    Style("DINOv3, NNX", "JAX, SigLIP and DINOv3", in_nnx_, **MORE),
]
