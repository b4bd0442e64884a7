"""The image tower of SigLIP, another function than the rest: a learned query attends to all patches."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx

from evidence.clean_pairs import flax_trees as T
from evidence.clean_pairs import in_linen, in_nnx, weights
from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.in_torch import renamed, thirds
from evidence.clean_pairs.libraries import timm_model
from evidence.clean_pairs.style import RIGHT, Side, Style
from parity.porting.reading.libraries.peers import import_timm

LAYERS = {"q": 1, "kv": 2, "proj": 1}


def adapt(size):
    """No class token, no classifier: the output is the pooled vector."""
    return replace(size, class_token=False, mean=False, classes=size.width)


def shapes(size):
    """The shapes by timm's names."""
    d = size.width
    every = {n: s for n, s in weights.shapes(adapt(size)).items() if not n.startswith("head")}
    every["attn_pool.latent"] = (1, 1, d)
    matrices = {name: (count * d, d) for name, count in LAYERS.items()}
    matrices |= {"norm": (d,), "mlp.fc1": (size.hidden, d), "mlp.fc2": (d, size.hidden)}
    for name, shape in matrices.items():
        every |= {f"attn_pool.{name}.weight": shape, f"attn_pool.{name}.bias": shape[:1]}
    return every


def in_timm(w, size, wrong=RIGHT):
    """timm's VisionTransformer with attention pooling."""
    return timm_model(w, size, global_pool="map", num_classes=0)


class Pooled(torch.nn.Module):
    """The part of the outputs that the others return too."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).pooler_output


def in_transformers(w, size, wrong=RIGHT):
    """SiglipVisionModel."""
    import_timm()
    import transformers

    cfg = transformers.SiglipVisionConfig(
        hidden_size=size.width, num_hidden_layers=size.depth, num_attention_heads=size.heads,
        intermediate_size=size.hidden, image_size=size.image[0], patch_size=size.patch,
        layer_norm_eps=size.epsilon, hidden_act="gelu",
    )  # fmt: skip
    at = "encoder.layers.{}."
    names = {"norm1": "layer_norm1", "norm2": "layer_norm2", "attn.proj": "self_attn.out_proj",
             "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}  # fmt: skip
    state = renamed(w, size, {old: at + new for old, new in names.items()})
    state |= thirds(w, size, at + "self_attn.{}_proj")
    state["embeddings.position_embedding.weight"] = w["pos_embed"][0]
    state["head.probe"] = w["attn_pool.latent"]
    pairs = {"patch_embed.proj": "embeddings.patch_embedding", "norm": "post_layernorm",
             "attn_pool.norm": "head.layernorm", "attn_pool.mlp.fc1": "head.mlp.fc1",
             "attn_pool.mlp.fc2": "head.mlp.fc2",
             "attn_pool.proj": "head.attention.out_proj"}  # fmt: skip
    for leaf in ("weight", "bias"):
        state |= {f"{new}.{leaf}": w[f"{old}.{leaf}"] for old, new in pairs.items()}
        both = [w[f"attn_pool.{name}.{leaf}"] for name in ("q", "kv")]
        state[f"head.attention.in_proj_{leaf}"] = torch.cat(both)
    model = Pooled(transformers.SiglipVisionModel(cfg))
    return Side(model, {f"model.{name}": each for name, each in state.items()})


def _inside(w):
    return {name.removeprefix("attn_pool."): w[name] for name in w if name.startswith("attn_pool.")}


def plain(w, size, wrong=RIGHT):
    """A function of a dictionary."""

    def dense(p, name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def model(w, x):
        x = J.embed(w, x, size)
        for i in range(size.depth):
            x = J.block(weights.block(w, i), x, size)
        x, p = J.norm(x, w, "norm", size), _inside(w)
        q = dense(p, "q", p["latent"]).reshape(1, size.heads, size.head_dim)
        kv = dense(p, "kv", x).reshape(*x.shape[:2], 2, size.heads, size.head_dim)
        scores = jnp.einsum("qhd,bkhd->bhqk", q, kv[:, :, 0]) / size.head_dim**0.5
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), kv[:, :, 1])
        y = dense(p, "proj", y.reshape(len(x), size.width))
        return y + J.mlp(p, J.norm(y, p, "norm", size), size)

    return Side(model, w)


def _split(p):
    """Flax's four projections of the pooling, with three rows of weights packed as in a block."""
    leaves = ("weight", "bias")
    packed = {f"attn.qkv.{leaf}": jnp.concatenate([p[f"q.{leaf}"], p[f"kv.{leaf}"]]) for leaf in leaves}
    return packed | {f"attn.proj.{leaf}": p[f"proj.{leaf}"] for leaf in leaves}


class LinenTower(in_linen.Shared):
    """Blocks with Flax's own attention."""

    @linen.compact
    def __call__(self, x):
        size = self.size
        x = self.embed(x, "patches")
        for i in range(size.depth):
            x, _ = in_linen.Block(size, name=f"encoderblock_{i}")(x)
        x = self.norm("norm")(x)
        probe = self.param("probe", linen.initializers.zeros, (1, 1, size.width))
        attend = linen.MultiHeadDotProductAttention(size.heads, deterministic=True, name="attn")
        y = attend(jnp.tile(probe, (len(x), 1, 1)), x)
        wide = self.act(self.dense(size.hidden, "fc1")(self.norm("LayerNorm_0")(y)))
        return (y + self.dense(size.width, "fc2")(wide))[:, 0]


def in_linen_(w, size, wrong=RIGHT):
    """Linen."""
    p = _inside(w)
    params: dict[str, Any] = {
        f"encoderblock_{i}": t for i, t in enumerate(T.layers(w, size, in_linen.tree_of_block(size)))
    }
    kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    params |= {"patches": {"kernel": kernel, "bias": w["patch_embed.proj.bias"]}, "pos": w["pos_embed"],
               "norm": T.scale(w, "norm"), "probe": p["latent"], "attn": T.attention(_split(p), size),
               "LayerNorm_0": T.scale(p, "norm"), "fc1": T.dense(p, "mlp.fc1"),
               "fc2": T.dense(p, "mlp.fc2")}  # fmt: skip
    return Side(LinenTower(size), {"params": params})


class NnxTower(nnx.Module):
    """Blocks with a Linear each for q, k, v; Flax's own attention as the pooling."""

    def __init__(self, w, size):
        p = _inside(w)
        self.size = size
        step = (size.patch, size.patch)
        self.patches = nnx.Conv(3, size.width, step, step, padding="VALID", rngs=nnx.Rngs(0))
        kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
        in_nnx.set_arrays(self.patches, kernel=kernel, bias=w["patch_embed.proj.bias"])
        self.pos, self.probe = nnx.Param(w["pos_embed"]), nnx.Param(p["latent"])
        blocks = T.layers(w, size, lambda p: p)
        self.layers = nnx.List([in_nnx.Block(b, size, RIGHT, None, None, "separate") for b in blocks])
        self.norm = in_nnx.layer_norm(w, "norm", size.epsilon, None)
        self.attn = in_nnx.flax_attention(_split(p), size, None)
        self.pooled = in_nnx.layer_norm(p, "norm", size.epsilon, None)
        self.fc1, self.fc2 = (in_nnx.linear(p, f"mlp.{n}", None) for n in ("fc1", "fc2"))

    def __call__(self, x):
        x = self.patches(x)
        x = x.reshape(len(x), -1, self.size.width) + self.pos[...]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        y = self.attn(jnp.repeat(self.probe[...], len(x), 0), x)
        wide = J.gelu(self.fc1(self.pooled(y)), self.size)
        return (y + self.fc2(wide))[:, 0]


def in_nnx_(w, size, wrong=RIGHT):
    """NNX."""
    return Side(NnxTower(w, size))


def square(size):
    """As transformers has it."""
    size = adapt(size)
    return replace(size, grid=(size.grid[0], size.grid[0]))


NONE: frozenset[str] = frozenset()
MORE: dict[str, Any] = {"accepts": NONE, "function": "siglip"}
STYLES = [
    Style("SigLIP, timm", "torch, SigLIP and DINOv3", in_timm, adapt=adapt, **MORE),
    Style("SigLIP, transformers", "torch, SigLIP and DINOv3", in_transformers, adapt=square, **MORE),
    Style("SigLIP, plain function", "JAX, SigLIP and DINOv3", plain, adapt=adapt, **MORE),
    Style("SigLIP, Linen", "JAX, SigLIP and DINOv3", in_linen_, adapt=adapt, **MORE),
    Style("SigLIP, NNX", "JAX, SigLIP and DINOv3", in_nnx_, adapt=adapt, narrow=True, **MORE),
]
