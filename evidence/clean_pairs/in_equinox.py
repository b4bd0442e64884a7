"""The model in Equinox, which is not among the dependencies: it is tried where it is installed."""

# installed by who tries it
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import equinox
import jax
import jax.numpy as jnp

from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import EVERY, RIGHT, Side, Style
from evidence.clean_pairs.weights import block as weights_of


class Packed(equinox.Module):
    """Attention with one projection, of the tokens of one image."""

    qkv: Any
    proj: Any
    norms: list
    size: Any = equinox.field(static=True)
    wrong: Any = equinox.field(static=True)
    i: int = equinox.field(static=True)

    def __call__(self, x):
        size = self.size
        q, k, v = jax.vmap(self.qkv)(x).reshape(-1, 3, size.heads, size.head_dim).transpose(1, 2, 0, 3)
        if size.qk_norm:
            q, k = (jax.vmap(jax.vmap(norm))(y) for norm, y in zip(self.norms, (q, k), strict=True))
        q = J.scaled(q, size, self.wrong, self.i)
        mixed = jax.vmap(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v)(q, k, v)  # wrong: no scale
        mixed = mixed if self.wrong("head order", self.i) else mixed.swapaxes(0, 1)
        return jax.vmap(self.proj)(mixed.reshape(x.shape))  # wrong: head order


class Own(equinox.Module):
    """Equinox's attention of a sequence with itself."""

    attn: Any

    def __call__(self, x):
        return self.attn(x, x, x)


class Block(equinox.Module):
    norm1: Any
    attn: Any
    norm2: Any
    fc1: Any
    fc2: Any
    gammas: list
    size: Any = equinox.field(static=True)
    wrong: Any = equinox.field(static=True)
    i: int = equinox.field(static=True)

    def __call__(self, x):
        wrong, i = self.wrong, self.i
        y = self.attn(jax.vmap(self.norm1)(x))  # wrong: epsilon
        y = y * self.gammas[0] if self.gammas else y
        x = y if wrong("no residual", i) else x + y
        fc1 = jax.lax.stop_gradient(self.fc1) if wrong("detached fc1", i) else self.fc1

        def mlp(token):
            # wrong: detached fc1, no residual
            return self.fc2(J.gelu(fc1(self.norm2(token)), self.size, wrong, i))

        y = jax.vmap(mlp)(x)  # wrong: no residual
        return x + (y * self.gammas[1] if self.gammas else y)  # wrong: no residual


class ViT(equinox.Module):
    """Of one image (C, H, W)."""

    patches: Any
    tokens: dict
    blocks: list
    norm: Any
    head: Any
    size: Any = equinox.field(static=True)
    wrong: Any = equinox.field(static=True)

    def __call__(self, x):
        size, wrong = self.size, self.wrong
        x = J.pixels(jnp.moveaxis(x, 0, -1), wrong)
        x = self.patches(jnp.moveaxis(x, -1, 0)).reshape(size.width, -1).T
        x = J.assemble(self.tokens, x[None], size, wrong)[0]
        for block in self.blocks:
            x = block(x)
        x = x if wrong("no last norm") else jax.vmap(self.norm)(x)
        return self.head(J.pool(x[None], size, wrong)[0])  # wrong: no last norm, last block not called


def _filled(module, weight, bias):
    return equinox.tree_at(lambda m: (m.weight, m.bias), module, (weight, bias))


def _linear(p, name):
    rows, columns = p[f"{name}.weight"].shape
    layer = equinox.nn.Linear(columns, rows, key=jax.random.key(0))
    return _filled(layer, p[f"{name}.weight"], p[f"{name}.bias"])


def _norm(p, name, epsilon):
    layer = equinox.nn.LayerNorm(len(p[f"{name}.weight"]), epsilon)
    return _filled(layer, p[f"{name}.weight"], p[f"{name}.bias"])


def _own(p, size):
    attn = equinox.nn.MultiheadAttention(
        size.heads, size.width, use_query_bias=True, use_key_bias=True, use_value_bias=True,
        use_output_bias=True, key=jax.random.key(0),
    )  # fmt: skip
    weights, biases = jnp.split(p["attn.qkv.weight"], 3), jnp.split(p["attn.qkv.bias"], 3)
    three = [_filled(proj, w, b) for proj, w, b in zip(
        (attn.query_proj, attn.key_proj, attn.value_proj), weights, biases, strict=True)]  # fmt: skip
    out = _filled(attn.output_proj, p["attn.proj.weight"], p["attn.proj.bias"])
    where = lambda m: (m.query_proj, m.key_proj, m.value_proj, m.output_proj)  # noqa: E731
    return Own(equinox.tree_at(where, attn, (*three, out)))


def _block(p, size, wrong, i, own):
    norms = [_norm(p, f"attn.{n}_norm", size.epsilon) for n in "qk"] if size.qk_norm else []
    packed = (_linear(p, "attn.qkv"), _linear(p, "attn.proj"), norms, size, wrong, i)
    attn = _own(p, size) if own else Packed(*packed)
    gammas = [p[f"ls{n}.gamma"] for n in (1, 2)] if size.gamma is not None else []
    first = 1e-5 if wrong("epsilon", i) else size.epsilon
    return Block(_norm(p, "norm1", first), attn, _norm(p, "norm2", size.epsilon),
                 _linear(p, "mlp.fc1"), _linear(p, "mlp.fc2"), gammas, size, wrong, i)  # fmt: skip


class Batched(equinox.Module):
    """A model that maps over images itself."""

    one: ViT

    def __call__(self, x):
        return jax.vmap(self.one)(x)


def _make(own, wrap):
    def make(w, size, wrong=RIGHT):
        conv = equinox.nn.Conv2d(3, size.width, size.patch, size.patch, key=jax.random.key(0))
        conv = _filled(conv, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"][:, None, None])
        blocks = [_block(weights_of(w, which), size, wrong, i, own)
                  for i, which in enumerate(J.order(size, wrong))]  # fmt: skip
        tokens = {n: w[n] for n in ("cls_token", "reg_token", "pos_embed") if n in w}
        norm, head = _norm(w, "norm", size.epsilon), _linear(w, "head")
        return Side(wrap(ViT(conv, tokens, blocks, norm, head, size, wrong)))

    return make


FAULTS = frozenset({
    "epsilon", "tanh gelu", "quick gelu", "last block not called", "no last norm", "detached fc1",
    "detached positions", "positions shifted", "channels reversed", "constants of pixels",
    "layers reversed", "layers as strings", "prefix in mean", "second token", "no residual",
})  # fmt: skip
INNER = FAULTS | {"no scale", "scale of width", "float32 scale", "head order"}


def _filtered(model):
    return equinox.filter_jit(equinox.filter_vmap(model))


GROUP = "JAX, Equinox"
STYLES = [
    Style("Equinox", GROUP, _make(True, Batched), EVERY - {"qk norm"}, FAULTS, False),
    Style("jax.vmap(Equinox)", GROUP, _make(False, jax.vmap), faults=INNER, channels_last=False),
    Style("filter_jit(filter_vmap(Equinox))", GROUP, _make(False, _filtered), faults=INNER,
          channels_last=False),
]  # fmt: skip
