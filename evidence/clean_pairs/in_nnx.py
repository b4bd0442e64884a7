"""The model in Flax NNX: packed by hand, three Linears for q, k and v, Flax's attention, `nnx.scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from evidence.clean_pairs import flax_trees as T
from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import EVERY, RIGHT, Side, Style


class ByHand(nnx.Module):
    """A dense layer of two arrays."""

    def __init__(self, p, name):
        self.w, self.b = nnx.Param(p[f"{name}.weight"].T), nnx.Param(p[f"{name}.bias"])

    def __call__(self, x):
        return x @ self.w[...] + self.b[...]


class NormByHand(nnx.Module):
    """A norm of two arrays."""

    def __init__(self, p, name, epsilon):
        self.g, self.b = nnx.Param(p[f"{name}.weight"]), nnx.Param(p[f"{name}.bias"])
        self.epsilon = epsilon

    def __call__(self, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)  # wrong: epsilon
        return x * self.g[...] + self.b[...]


def set_arrays(module, **arrays):
    for name, each in arrays.items():
        setattr(module, name, nnx.Param(jnp.asarray(each)))
    return module


def linear(p, name, dtype):
    rows, columns = p[f"{name}.weight"].shape
    layer = nnx.Linear(columns, rows, rngs=nnx.Rngs(0), dtype=dtype)
    return set_arrays(layer, **T.dense(p, name))


def layer_norm(p, name, epsilon, dtype):
    layer = nnx.LayerNorm(len(p[f"{name}.weight"]), epsilon=epsilon, rngs=nnx.Rngs(0), dtype=dtype)
    return set_arrays(layer, **T.scale(p, name))


class Attention(nnx.Module):
    """Packed, by hand, or from three Linears."""

    q: nnx.Linear
    k: nnx.Linear
    v: nnx.Linear

    def __init__(self, p, size, wrong, i, dtype, style):
        self.size, self.wrong, self.i = size, wrong, i
        self.packed = style != "separate"
        if self.packed:
            self.qkv = ByHand(p, "attn.qkv") if style == "by hand" else linear(p, "attn.qkv", dtype)
        else:
            for name, (kernel, bias) in zip("qkv", T.thirds(p), strict=True):
                layer = linear({"x.weight": kernel.T, "x.bias": bias}, "x", dtype)
                setattr(self, name, layer)
        self.out = ByHand(p, "attn.proj") if style == "by hand" else linear(p, "attn.proj", dtype)
        if size.qk_norm:
            self.norms = nnx.List([NormByHand(p, f"attn.{n}_norm", size.epsilon) for n in "qk"])

    def __call__(self, x):
        size, wrong, i = self.size, self.wrong, self.i
        inner = (*x.shape[:2], size.heads, size.head_dim)
        if self.packed:
            y = self.qkv(x).reshape(*x.shape[:2], 3, size.heads, size.head_dim)
            q, k, v = y[:, :, 0], y[:, :, 1], y[:, :, 2]  # wrong: q norm missing
            if wrong("packing", i):
                y = y.reshape(*inner, 3)  # wrong: packing
                q, k, v = y[..., 0], y[..., 1], y[..., 2]  # wrong: packing
        else:
            # wrong: q norm missing
            q, k, v = (layer(x).reshape(inner) for layer in (self.q, self.k, self.v))
        if size.qk_norm:
            first, second = self.norms[::-1] if wrong("q and k norms exchanged", i) else self.norms
            q = q if wrong("q norm missing", i) else first(q)  # wrong: q and k norms exchanged
            k = second(k)  # wrong: q and k norms exchanged
        q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
        scores = J.scaled(q, size, wrong, i) @ k.mT  # wrong: q norm missing, no scale
        share = jax.nn.softmax(scores, axis=-1)  # wrong: no scale
        share = jax.lax.stop_gradient(share) if wrong("detached attention", i) else share
        y = share @ v  # wrong: detached attention
        y = y if wrong("head order", i) else y.swapaxes(1, 2)
        return self.out(y.reshape(x.shape))  # wrong: head order


def flax_attention(p, size, dtype):
    """`nnx.MultiHeadAttention`."""
    attn = nnx.MultiHeadAttention(size.heads, size.width, decode=False, rngs=nnx.Rngs(0), dtype=dtype)
    for name, arrays in T.attention(p, size).items():
        set_arrays(getattr(attn, name), **arrays)
    return attn


class Block(nnx.Module):
    """Any of the attentions, with the norms and dense layers that go with it."""

    def __init__(self, p, size, wrong, i, dtype, style):
        self.size, self.wrong, self.i = size, wrong, i
        first = 1e-5 if wrong("epsilon", i) else size.epsilon
        if style == "by hand":
            self.norm1, self.norm2 = NormByHand(p, "norm1", first), NormByHand(p, "norm2", size.epsilon)
            self.fc1, self.fc2 = ByHand(p, "mlp.fc1"), ByHand(p, "mlp.fc2")
        else:
            self.norm1 = layer_norm(p, "norm1", first, dtype)
            self.norm2 = layer_norm(p, "norm2", size.epsilon, dtype)
            self.fc1, self.fc2 = linear(p, "mlp.fc1", dtype), linear(p, "mlp.fc2", dtype)
        own = style == "flax"
        self.attn = flax_attention(p, size, dtype) if own else Attention(p, size, wrong, i, dtype, style)
        for name, each in T.gammas(p).items():
            setattr(self, name, nnx.Param(each))

    def scaled(self, y, number):
        number = 3 - number if self.wrong("gammas exchanged", self.i) else number
        if self.size.gamma is None:
            return y
        factors = getattr(self, f"gamma{number}")[...]
        factors = jax.lax.stop_gradient(factors) if self.wrong("detached gamma", self.i) else factors
        return y * factors.astype(y.dtype)  # wrong: detached gamma, gammas exchanged

    def __call__(self, x):
        wrong, i = self.wrong, self.i
        y = self.scaled(self.attn(self.norm1(x)), 1)  # wrong: epsilon
        skip = jax.lax.stop_gradient(x) if wrong("detached skip", i) else x
        x = y if wrong("no residual", i) else skip + y  # wrong: detached skip
        y = self.norm2(x)  # wrong: no residual
        y = jax.lax.stop_gradient(y) if wrong("detached mlp", i) else y
        y = self.fc1(y)  # wrong: detached mlp
        y = nnx.relu(y) if self.size.relu else nnx.gelu(y, approximate=wrong("tanh gelu", i))
        return x + self.scaled(self.fc2(y), 2)  # wrong: no residual


def _called(x, layer):
    return layer(x)


class ViT(nnx.Module):
    """The whole, its blocks in a list or stacked."""

    layers: Any

    def __init__(self, w, size, wrong, dtype, style, scan):
        self.size, self.wrong, self.scan = size, wrong, scan
        step = (size.patch, size.patch)
        self.patches = nnx.Conv(
            3, size.width, step, step, padding="VALID", rngs=nnx.Rngs(0), dtype=dtype
        )
        tree = T.outer(w, ("patches", "norm", "head"))
        set_arrays(self.patches, **tree["patches"])
        for name in ("cls", "reg", "pos"):
            if name in tree:
                setattr(self, name, nnx.Param(tree[name]))
        numbers = [None] * size.depth if scan else range(size.depth)
        blocks = T.layers(w, size, lambda p: p, wrong)
        blocks = [Block(p, size, wrong, i, dtype, style) for p, i in zip(blocks, numbers, strict=False)]
        if scan:
            graphs = [nnx.split(each) for each in blocks]
            self.layers = nnx.merge(graphs[0][0], T.stack([state for _, state in graphs]))
        else:
            self.layers = nnx.List(blocks)
        if style == "by hand":
            self.norm, self.head = NormByHand(w, "norm", size.epsilon), ByHand(w, "head")
        else:
            self.norm, self.head = layer_norm(w, "norm", size.epsilon, dtype), linear(w, "head", dtype)

    def __call__(self, x):
        size, wrong = self.size, self.wrong
        x = self.patches(J.pixels(x, wrong))
        names = (name for name in ("cls_token", "reg_token", "pos_embed") if hasattr(self, name[:3]))
        held = {name: getattr(self, name[:3])[...].astype(x.dtype) for name in names}
        x = J.assemble(held, x.reshape(len(x), -1, size.width), size, wrong)
        if self.scan:
            call = nnx.remat(_called) if self.scan == "remat" else _called
            run = nnx.scan(call, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            x = run(x, self.layers)  # wrong: layers reversed, layers as strings
        else:
            for layer in self.layers:
                x = layer(x)
        x = x if wrong("no last norm") else self.norm(x)
        return self.head(J.pool(x, size, wrong))  # wrong: no last norm, last block not called


def _make(style, scan=""):
    def make(w, size, wrong=RIGHT, dtype=None):
        return Side(ViT(w, size, wrong, dtype, style, scan))

    return make


FAULTS = frozenset({
    "epsilon", "tanh gelu", "detached mlp", "last block not called", "no last norm",
    "detached positions", "positions shifted", "channels reversed", "constants of pixels",
    "layers reversed", "layers as strings", "gammas exchanged", "detached gamma", "prefix in mean",
    "second token", "no residual", "detached skip",
})  # fmt: skip
INNER = FAULTS | {
    "packing", "no scale", "scale of width", "float32 scale", "detached attention", "head order",
    "q norm missing", "q and k norms exchanged",
}  # fmt: skip
THREE, OWN = INNER - {"packing"}, EVERY - {"qk norm"}
STYLES = [
    Style("NNX, packed by hand", "JAX, NNX", _make("by hand"), faults=INNER),
    Style("NNX, packed, nnx.LayerNorm", "JAX, NNX", _make("packed"), faults=INNER, typed=True),
    Style("NNX, a Linear each for q, k, v", "JAX, NNX", _make("separate"), faults=THREE, typed=True),
    Style("nnx.MultiHeadAttention", "JAX, NNX", _make("flax"), OWN, FAULTS, typed=True, narrow=True),
    Style("nnx.scan", "JAX, NNX", _make("packed", "plain"), faults=INNER, typed=True),
    Style("nnx.scan of nnx.remat, q, k, v", "JAX, NNX", _make("separate", "remat"), faults=THREE,
          typed=True),
]  # fmt: skip
