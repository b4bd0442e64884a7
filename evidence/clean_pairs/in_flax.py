"""The model in Flax: Linen and NNX, each with and without a scan over its layers; and in Equinox."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from evidence.clean_pairs import weights as W


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x, _=None):
        y = linen.LayerNorm(epsilon=W.EPSILON, name="norm1")(x)
        y = linen.MultiHeadDotProductAttention(W.HEADS, deterministic=True, name="attn")(y)
        x = x + y
        y = linen.LayerNorm(epsilon=W.EPSILON, name="norm2")(x)
        y = linen.gelu(linen.Dense(W.HIDDEN, name="fc1")(y), approximate=False)
        return x + linen.Dense(W.D, name="fc2")(y), None


class LinenViT(linen.Module):
    scan: bool = False

    @linen.compact
    def __call__(self, x):
        size = (W.PATCH, W.PATCH)
        x = linen.Conv(W.D, size, size, "VALID", name="patches")(x)
        x = x.reshape(len(x), -1, W.D)
        cls = self.param("cls", linen.initializers.zeros, (1, 1, W.D))
        x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], 1)
        x = x + self.param("pos", linen.initializers.zeros, (1, W.TOKENS, W.D))
        if self.scan:
            block = linen.scan(linen.remat(LinenBlock), variable_axes={"params": 0},
                               split_rngs={"params": True}, length=W.DEPTH)  # fmt: skip
            x, _ = block(name="layers")(x, None)
        else:
            for i in range(W.DEPTH):
                x, _ = LinenBlock(name=f"layer_{i}")(x)
        x = linen.LayerNorm(epsilon=W.EPSILON, name="norm")(x)
        return linen.Dense(W.CLASSES, name="head")(x[:, 0])


def dense(p, name):
    return {"kernel": p[name + ".weight"].T, "bias": p[name + ".bias"]}


def scale(p, name):
    return {"scale": p[name + ".weight"], "bias": p[name + ".bias"]}


def attention(p):
    """Flax's four projections, with heads as an axis."""
    kernels, biases = np.split(p["attn.qkv.weight"], 3), np.split(p["attn.qkv.bias"], 3)
    projections = {
        name: {
            "kernel": kernel.T.reshape(W.D, W.HEADS, W.HEAD_DIM),
            "bias": bias.reshape(W.HEADS, W.HEAD_DIM),
        }
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True)
    }
    out = p["attn.proj.weight"].T.reshape(W.HEADS, W.HEAD_DIM, W.D)
    return projections | {"out": {"kernel": out, "bias": p["attn.proj.bias"]}}


def layer(p):
    return {
        "norm1": scale(p, "norm1"), "attn": attention(p), "norm2": scale(p, "norm2"),
        "fc1": dense(p, "mlp.fc1"), "fc2": dense(p, "mlp.fc2"),
    }  # fmt: skip


def outer(w):
    kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    return {
        "patches": {"kernel": kernel, "bias": w["patch_embed.proj.bias"]},
        "cls": w["cls_token"], "pos": w["pos_embed"],
        "norm": scale(w, "norm"), "head": dense(w, "head"),
    }  # fmt: skip


def layers(w):
    return [layer(W.block(w, i)) for i in range(W.DEPTH)]


def stacked(w):
    return jax.tree.map(lambda *each: np.stack(each), *layers(w))


def linen_model(w):
    """Linen."""
    params = outer(w) | {f"layer_{i}": each for i, each in enumerate(layers(w))}
    return LinenViT(), {"params": params}, W.images(channels_last=True)


def linen_scan(w):
    """Linen, its layers under scan and remat."""
    params = outer(w) | {"layers": stacked(w)}
    return LinenViT(scan=True), {"params": params}, W.images(channels_last=True)


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = (nnx.LayerNorm(W.D, epsilon=W.EPSILON, rngs=rngs) for _ in range(2))
        self.attn = nnx.MultiHeadAttention(W.HEADS, W.D, decode=False, rngs=rngs)
        self.fc1, self.fc2 = nnx.Linear(W.D, W.HIDDEN, rngs=rngs), nnx.Linear(W.HIDDEN, W.D, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(nnx.gelu(self.fc1(self.norm2(x)), approximate=False))


class NnxViT(nnx.Module):
    layers: Any

    def __init__(self, rngs, *, scan=False):
        size = (W.PATCH, W.PATCH)
        self.patches = nnx.Conv(W.C, W.D, size, size, padding="VALID", rngs=rngs)
        self.cls = nnx.Param(jnp.zeros((1, 1, W.D)))
        self.pos = nnx.Param(jnp.zeros((1, W.TOKENS, W.D)))
        self.scan = scan
        if scan:
            make = nnx.vmap(NnxBlock, in_axes=(nnx.StateAxes({...: 0}),))
            self.layers = nnx.split_rngs(splits=W.DEPTH)(make)(rngs)
        else:
            self.layers = nnx.List(NnxBlock(rngs) for _ in range(W.DEPTH))
        self.norm = nnx.LayerNorm(W.D, epsilon=W.EPSILON, rngs=rngs)
        self.head = nnx.Linear(W.D, W.CLASSES, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x)
        x = x.reshape(len(x), -1, W.D)
        x = jnp.concatenate([jnp.repeat(self.cls[...], len(x), 0), x], 1) + self.pos[...]
        if self.scan:
            x = nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(
                x, self.layers
            )
        else:
            for each in self.layers:
                x = each(x)
        return self.head(self.norm(x[:, 0]))


def filled(model, values):
    """An NNX model with the numbers of a nested dictionary."""
    state = nnx.state(model, nnx.Param)
    flat = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(state)}
    given = {
        ".".join(_key(k) for k in path): v for path, v in jax.tree_util.tree_leaves_with_path(values)
    }
    assert flat.keys() == given.keys()
    for name, variable in flat.items():
        variable[...] = jnp.asarray(given[name])
    nnx.update(model, state)
    return model


def _key(entry):
    return str(entry.key if hasattr(entry, "key") else entry.idx)


def nnx_model(w):
    """NNX."""
    model = NnxViT(nnx.Rngs(0))
    return filled(model, outer(w) | {"layers": layers(w)}), W.images(channels_last=True)


def nnx_scan(w):
    """NNX, its layers under scan."""
    model = NnxViT(nnx.Rngs(0), scan=True)
    return filled(model, outer(w) | {"layers": stacked(w)}), W.images(channels_last=True)


STYLES = {"Linen": linen_model, "Linen, scan": linen_scan, "NNX": nnx_model, "NNX, scan": nnx_scan}
