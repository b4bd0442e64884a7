"""Weights by timm's names as the trees that Linen and NNX hold; of arrays or tracers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from evidence.clean_pairs.jax_parts import order
from evidence.clean_pairs.style import RIGHT
from evidence.clean_pairs.weights import block as weights_of


def dense(p, name):
    return {"kernel": p[f"{name}.weight"].T, "bias": p[f"{name}.bias"]}


def scale(p, name):
    return {"scale": p[f"{name}.weight"], "bias": p[f"{name}.bias"]}


def thirds(p):
    """The three projections (inputs, D) and their biases."""
    kernels, biases = jnp.split(p["attn.qkv.weight"], 3), jnp.split(p["attn.qkv.bias"], 3)
    return [(kernel.T, bias) for kernel, bias in zip(kernels, biases, strict=True)]


def attention(p, size):
    """Flax's four projections, with heads as an axis."""
    inner = (size.heads, size.head_dim)
    tree = {
        name: {"kernel": kernel.reshape(size.width, *inner), "bias": bias.reshape(inner)}
        for name, (kernel, bias) in zip(("query", "key", "value"), thirds(p), strict=True)
    }
    out = p["attn.proj.weight"].T.reshape(*inner, size.width)
    return tree | {"out": {"kernel": out, "bias": p["attn.proj.bias"]}}


def gammas(p):
    return {f"gamma{n}": p[f"ls{n}.gamma"] for n in (1, 2) if f"ls{n}.gamma" in p}


def outer(w, names):
    """What is outside of the blocks; `names` are those of the embedding, the last norm, the head."""
    kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    patches, norm, head = names
    tree = {new: w[old] for new, old in (("cls", "cls_token"), ("reg", "reg_token")) if old in w}
    return tree | {
        patches: {"kernel": kernel, "bias": w["patch_embed.proj.bias"]},
        "pos": w["pos_embed"], norm: scale(w, "norm"), head: dense(w, "head"),
    }  # fmt: skip


def layers(w, size, make, wrong=RIGHT):
    """Trees of the blocks, in their order."""
    return [make(weights_of(w, i)) for i in order(size, wrong)]


def stack(trees):
    """Trees alike as one."""
    return jax.tree.map(lambda *each: jnp.stack(each), *trees)
