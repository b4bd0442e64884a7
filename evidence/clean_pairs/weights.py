"""Weights as people have them: fresh, trained, pruned, quantised, saturated; in torch's layouts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from evidence.clean_pairs.sizes import Size

Weights = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
TOKENS = (
    "cls_token",
    "reg_token",
    "pos_embed",
    "class_embedding",
    "positional_embedding",
    "attn_pool.latent",
)
FIRST, SECOND = r"mlp\.(fc1|c_fc)\.", r"mlp\.(fc2|c_proj)\."
PACKED = r"attn\.(qkv\.|in_proj_)"


def shapes(size: Size) -> Shapes:
    """The shapes by timm's names."""
    d, rows = size.width, (3 * size.width, size.width)
    every: Shapes = {"cls_token": (1, 1, d)} if size.class_token else {}
    every |= {"reg_token": (1, size.registers, d)} if size.registers else {}
    every |= {
        "pos_embed": (1, size.positions, d),
        "patch_embed.proj.weight": (d, 3, size.patch, size.patch),
        "patch_embed.proj.bias": (d,),
    }
    for i in range(size.depth):
        matrices = {"norm1": (d,), "attn.qkv": rows}
        if size.qk_norm:
            matrices |= {"attn.q_norm": (size.head_dim,), "attn.k_norm": (size.head_dim,)}
        matrices |= {
            "attn.proj": (d, d), "norm2": (d,), "mlp.fc1": (size.hidden, d), "mlp.fc2": (d, size.hidden),
        }  # fmt: skip
        for name, shape in matrices.items():
            every[f"blocks.{i}.{name}.weight"] = shape
            every[f"blocks.{i}.{name}.bias"] = shape[:1]
        if size.gamma is not None:
            every |= {f"blocks.{i}.ls1.gamma": (d,), f"blocks.{i}.ls2.gamma": (d,)}
    every |= {"norm.weight": (d,), "norm.bias": (d,)}
    return every | {"head.weight": (size.classes, d), "head.bias": (size.classes,)}


def role(name: str, shape: tuple[int, ...]) -> str:
    """What an array is: gain, bias, gamma, token or matrix."""
    last = name.rpartition(".")[2]
    if name in TOKENS or last.startswith("gamma"):
        return "gamma" if last.startswith("gamma") else "token"
    if last.endswith("bias"):
        return "bias"
    return "gain" if len(shape) == 1 else "matrix"


def inputs_of(shape: tuple[int, ...]) -> int:
    """Numbers that one output of a matrix sums."""
    return int(np.prod(shape[1:]))


def _cut(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> np.ndarray:
    return deviation * np.clip(rng.normal(size=shape), -2, 2)


def _fresh(kind: str, shapes: Shapes, size: Size, rng: np.random.Generator) -> Weights:
    """As a library draws them before any step of training."""
    w: Weights = {}
    for name, shape in shapes.items():
        what, like = role(name, shape), shapes.get(name.removesuffix("bias") + "weight", (1, 1))
        fan = inputs_of(shape if what == "matrix" else like)
        if what in ("gain", "gamma"):
            w[name] = np.full(shape, 1.0 if what == "gain" else size.gamma)
        elif kind == "torch":
            bound = 1 / max(fan, 1) ** 0.5
            w[name] = rng.normal(size=shape) if what == "token" else rng.uniform(-bound, bound, shape)
            if what == "bias" and len(like) == 1:
                w[name] = np.zeros(shape)
        elif what == "bias":
            small = kind == "xavier" and ".mlp." in name
            w[name] = 1e-6 * rng.normal(size=shape) if small else np.zeros(shape)
        elif what == "token":
            none = kind in ("lecun", "xavier") and "pos" not in name
            tiny = kind == "timm" and "pos" not in name
            w[name] = np.zeros(shape) if none else _cut(rng, shape, 1e-6 if tiny else 0.02)
        elif kind == "xavier":
            bound = (6 / (shape[0] + fan)) ** 0.5
            w[name] = rng.uniform(-bound, bound, shape)
        else:
            w[name] = _cut(rng, shape, fan**-0.5 if kind == "lecun" else 0.02)
    return w


def _trained(shapes: Shapes, rng: np.random.Generator) -> Weights:
    """Everything has moved."""
    about = {
        "gain": (1, 0.2), "bias": (0, 0.1), "gamma": (0.4, 0.2), "token": (0, 0.3),
    }  # fmt: skip
    w: Weights = {}
    for name, shape in shapes.items():
        mean, spread = about.get(role(name, shape)) or (0, inputs_of(shape) ** -0.5)
        w[name] = mean + spread * rng.normal(size=shape)
    return w


def _with_gamma(number: float) -> Callable[[Size], Size]:
    return lambda size: replace(size, gamma=number)


def draw(kind: str, size: Size, shapes_of: Callable[[Size], Shapes] = shapes) -> Weights:
    """Weights of a kind in float32; the same for each call."""
    rng = np.random.default_rng(zlib.crc32(f"{kind} {size}".encode()))
    names = shapes_of(size)
    if kind in ("torch", "timm", "lecun", "xavier", "std 0.02"):
        w = _fresh(kind, names, size, rng)
    elif kind.startswith(("zero", "layer scale")):
        w = _fresh("timm", names, size, rng)
    else:
        w = _trained(names, rng)
    CHANGES.get(kind, lambda *_: None)(w, size, rng)
    return {name: np.asarray(each, np.float32) for name, each in w.items()}


def _zeros(*which: str) -> Callable[..., None]:
    def change(w: Weights, size: Size, rng: np.random.Generator) -> None:
        for name in w:
            w[name] = np.zeros_like(w[name]) if name in which else w[name]

    return change


def _some(w: Weights, pattern: str) -> list[str]:
    return [name for name in w if re.search(pattern, name)]


def _outliers(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name in [*_some(w, SECOND), *_some(w, r"blocks\.0\.ls2\.gamma")]:
        if re.search(r"blocks\.0\.", name):
            w[name][[1, size.width - 3]] *= 1 if name.endswith("gamma") else 100


def _saturated(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name in _some(w, PACKED + "weight"):
        w[name][: 2 * size.width] *= 8
    for name in _some(w, r"attn\.[qk]_norm\.weight"):
        w[name] *= 8


def _pruned(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name, each in w.items():
        if role(name, each.shape) == "matrix":
            w[name] = np.where(rng.random(each.shape) < 0.9, 0, each)


def _quantised(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name, each in w.items():
        if role(name, each.shape) == "matrix":
            step = np.abs(each).max() / 7
            w[name] = np.round(each / step) * step


def _alike(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name in _some(w, PACKED):
        heads = w[name].reshape(3, size.heads, size.head_dim, -1)
        heads[:] = heads[:, :1]
    for name in w:
        w[name] = w[re.sub(r"blocks\.\d+\.", "blocks.0.", name)].copy()


def _dead(w: Weights, size: Size, rng: np.random.Generator) -> None:
    for name in _some(w, FIRST + "bias"):
        w[name][: size.hidden // 2] = -50


CHANGES: dict[str, Callable[..., None]] = {
    "zero head": _zeros("head.weight", "proj"),
    "zero tokens": _zeros(*TOKENS),
    "zeros": _zeros("head.weight", "proj", *TOKENS),
    "outliers": _outliers,
    "saturated": _saturated,
    "pruned": _pruned,
    "quantised": _quantised,
    "alike": _alike,
    "dead": _dead,
}
KINDS: dict[str, tuple[str, str, Callable[[Size], Size]]] = {
    "torch": ("as torch.nn draws them: uniform, biases too", "", lambda s: s),
    "timm": ("as timm draws them: truncated normal of 0.02, biases zero", "", lambda s: s),
    "lecun": ("Flax's lecun_normal; biases and class token zero", "", lambda s: s),
    "xavier": ("Big Vision's: Xavier, biases of 1e-6 in the MLP", "", lambda s: s),
    "std 0.02": ("transformers': normal of 0.02, tokens too", "", lambda s: s),
    "zero head": ("timm's, and a head of zeros", "", lambda s: s),
    "zero tokens": ("timm's, and positions and class token of zeros", "", lambda s: s),
    "zeros": ("both of these", "", lambda s: s),
    "layer scale 1e-5": ("timm's, under a layer scale of 1e-5", "layer scale", _with_gamma(1e-5)),
    "layer scale 1e-6": ("the same of 1e-6", "layer scale", _with_gamma(1e-6)),
    "trained": ("everything has moved", "", lambda s: s),
    "outliers": ("trained, and two channels a hundred times the others", "", lambda s: s),
    "saturated": ("trained, and the softmax one-hot", "", lambda s: s),
    "pruned": ("trained, and nine tenths of each matrix zero", "", lambda s: s),
    "quantised": ("trained, and each matrix in four bits", "", lambda s: s),
    "alike": ("trained, and all blocks and all heads alike", "", lambda s: s),
    "dead": ("trained, with ReLU, and half its units dead", "relu", lambda s: replace(s, relu=True)),
}
"""Kind -> what it is, the feature that a style needs for it, what it makes of a size."""


def block(weights: dict, i: int) -> dict:
    """The weights of one block."""
    prefix = f"blocks.{i}."
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
