"""The model in Haiku, which is not among the dependencies: it is tried where it is installed."""

# installed by who tries it
# pyright: reportMissingImports=false

from __future__ import annotations

import functools

import haiku
import jax
import jax.numpy as jnp

from evidence.clean_pairs import flax_trees as T
from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import EVERY, RIGHT, Side, Style
from evidence.clean_pairs.weights import block as weights_of


def _norm(name, epsilon):
    return haiku.LayerNorm(-1, True, True, eps=epsilon, name=name)


def _gamma(y, name, size):
    if size.gamma is None:
        return y
    return y * haiku.get_parameter(name, (size.width,), init=jnp.ones)


def _attention(y, size, wrong, i, own):
    if own:
        attn = haiku.MultiHeadAttention(size.heads, size.head_dim, w_init_scale=1.0, name=f"attn{i}")
        return attn(y, y, y)
    qkv = haiku.Linear(3 * size.width, name=f"qkv{i}")(y)
    q, k, v = jnp.moveaxis(qkv.reshape(*qkv.shape[:2], 3, size.heads, size.head_dim), 2, 0)
    if size.qk_norm:
        q, k = _norm(f"q_norm{i}", size.epsilon)(q), _norm(f"k_norm{i}", size.epsilon)(k)
    scores = jnp.einsum("bthd,bThd->bhtT", J.scaled(q, size, wrong, i), k)
    y = jnp.einsum("bhtT,bThd->bthd", jax.nn.softmax(scores), v).reshape(y.shape)  # wrong: no scale
    return haiku.Linear(size.width, name=f"proj{i}")(y)


def _forward(x, size, wrong, own):
    step = size.patch
    x = haiku.Conv2D(size.width, step, step, padding="VALID", name="patches")(J.pixels(x, wrong))
    shapes = {"pos_embed": size.positions, "cls_token": size.class_token, "reg_token": size.registers}
    held = {
        timm: haiku.get_parameter(timm[:3], (1, int(count), size.width), init=jnp.zeros)
        for timm, count in shapes.items()
        if count
    }
    x = J.assemble(held, x.reshape(len(x), -1, size.width), size, wrong)
    for i in range(size.depth - wrong("last block not called")):
        y = _norm(f"a{i}", 1e-5 if wrong("epsilon", i) else size.epsilon)(x)  # wrong: epsilon
        y = _gamma(_attention(y, size, wrong, i, own), f"gamma1_{i}", size)
        x = y if wrong("no residual", i) else x + y
        y = _norm(f"b{i}", size.epsilon)(x)  # wrong: no residual
        y = jax.lax.stop_gradient(y) if wrong("detached mlp", i) else y
        y = J.gelu(haiku.Linear(size.hidden, name=f"up{i}")(y), size, wrong, i)  # wrong: detached mlp
        # wrong: no residual
        x = x + _gamma(haiku.Linear(size.width, name=f"down{i}")(y), f"gamma2_{i}", size)
    x = x if wrong("no last norm") else _norm("norm", size.epsilon)(x)  # wrong: last block not called
    return haiku.Linear(size.classes, name="head")(J.pool(x, size, wrong))  # wrong: no last norm


def _dense(p, name):
    return {"w": p[f"{name}.weight"].T, "b": p[f"{name}.bias"]}


def _scale(p, name):
    return {"scale": p[f"{name}.weight"], "offset": p[f"{name}.bias"]}


def _tree(w, size, wrong, own):
    names = {"pos": "pos_embed", "cls": "cls_token", "reg": "reg_token"}
    outside = {new: w[old] for new, old in names.items() if old in w}
    kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    tree = {"patches": {"w": kernel, "b": w["patch_embed.proj.bias"]}, "norm": _scale(w, "norm"),
            "head": _dense(w, "head")}  # fmt: skip
    for i, which in enumerate(J.order(size, wrong)):
        p = weights_of(w, which)
        tree |= {f"a{i}": _scale(p, "norm1"), f"b{i}": _scale(p, "norm2"),
                 f"up{i}": _dense(p, "mlp.fc1"), f"down{i}": _dense(p, "mlp.fc2")}  # fmt: skip
        outside |= {f"{name}_{i}": each for name, each in T.gammas(p).items()}
        if own:
            names = ("query", "key", "value")
            for name, (kernel, bias) in zip(names, T.thirds(p), strict=True):
                tree[f"attn{i}/{name}"] = {"w": kernel, "b": bias}
            tree[f"attn{i}/linear"] = _dense(p, "attn.proj")
        else:
            tree |= {f"qkv{i}": _dense(p, "attn.qkv"), f"proj{i}": _dense(p, "attn.proj")}
            if size.qk_norm:
                tree |= {f"{n}_norm{i}": _scale(p, f"attn.{n}_norm") for n in "qk"}
    return tree | {"~": outside}


def _make(own):
    def make(w, size, wrong=RIGHT):
        model = haiku.without_apply_rng(
            haiku.transform(functools.partial(_forward, size=size, wrong=wrong, own=own))
        )
        return Side(functools.partial(model.apply, _tree(w, size, wrong, own)))

    return make


FAULTS = frozenset({
    "epsilon", "tanh gelu", "quick gelu", "detached mlp", "last block not called", "no last norm",
    "detached positions", "positions shifted", "channels reversed", "constants of pixels",
    "layers reversed", "layers as strings", "prefix in mean", "second token", "no residual",
})  # fmt: skip
STYLES = [
    Style("Haiku", "JAX, Haiku", _make(own=False),
          faults=FAULTS | {"no scale", "scale of width", "float32 scale"}),
    Style("haiku.MultiHeadAttention", "JAX, Haiku", _make(own=True), EVERY - {"qk norm"}, FAULTS),
]  # fmt: skip
