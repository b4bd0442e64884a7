"""The model in Equinox, which is not among the dependencies: it is tried where it is installed."""

# installed by who tries it
# pyright: reportMissingImports=false

from __future__ import annotations

import equinox
import jax
import jax.numpy as jnp
import numpy as np

from evidence.clean_pairs import weights as W


class Block(equinox.Module):
    norm1: equinox.nn.LayerNorm
    attn: equinox.nn.MultiheadAttention
    norm2: equinox.nn.LayerNorm
    fc1: equinox.nn.Linear
    fc2: equinox.nn.Linear

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)
        x = x + self.attn(y, y, y)
        y = jax.vmap(lambda each: self.fc2(jax.nn.gelu(self.fc1(each), approximate=False)))(
            jax.vmap(self.norm2)(x)
        )
        return x + y


class ViT(equinox.Module):
    patches: equinox.nn.Conv2d
    cls: jax.Array
    pos: jax.Array
    blocks: list[Block]
    norm: equinox.nn.LayerNorm
    head: equinox.nn.Linear

    def single(self, x):
        x = self.patches(x).reshape(W.D, -1).T
        x = jnp.concatenate([self.cls[0], x]) + self.pos[0]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[0]))

    def __call__(self, x):
        return jax.vmap(self.single)(x)


def _linear(p, name):
    key = jax.random.key(0)
    rows, columns = p[name + ".weight"].shape
    return _filled(equinox.nn.Linear(columns, rows, key=key), p[name + ".weight"], p[name + ".bias"])


def _filled(module, weight, bias):
    return equinox.tree_at(
        lambda m: (m.weight, m.bias), module, (jnp.asarray(weight), jnp.asarray(bias))
    )


def _norm(p, name):
    return _filled(equinox.nn.LayerNorm(W.D, W.EPSILON), p[name + ".weight"], p[name + ".bias"])


def _attention(p):
    attn = equinox.nn.MultiheadAttention(
        W.HEADS, W.D, use_query_bias=True, use_key_bias=True, use_value_bias=True, use_output_bias=True,
        key=jax.random.key(0),
    )  # fmt: skip
    weights, biases = np.split(p["attn.qkv.weight"], 3), np.split(p["attn.qkv.bias"], 3)
    own = [_filled(proj, w, b) for proj, w, b in zip(
        (attn.query_proj, attn.key_proj, attn.value_proj), weights, biases, strict=True)]  # fmt: skip
    out = _filled(attn.output_proj, p["attn.proj.weight"], p["attn.proj.bias"])
    where = lambda m: (m.query_proj, m.key_proj, m.value_proj, m.output_proj)  # noqa: E731
    return equinox.tree_at(where, attn, (*own, out))


def _block(p):
    return Block(_norm(p, "norm1"), _attention(p), _norm(p, "norm2"), _linear(p, "mlp.fc1"),
                 _linear(p, "mlp.fc2"))  # fmt: skip


def equinox_model(w):
    """Equinox."""
    conv = equinox.nn.Conv2d(W.C, W.D, W.PATCH, W.PATCH, key=jax.random.key(0))
    bias = w["patch_embed.proj.bias"][:, None, None]
    blocks = [_block(W.block(w, i)) for i in range(W.DEPTH)]
    model = ViT(_filled(conv, w["patch_embed.proj.weight"], bias), jnp.asarray(w["cls_token"]),
                jnp.asarray(w["pos_embed"]), blocks, _norm(w, "norm"), _linear(w, "head"))  # fmt: skip
    return model, W.images()


STYLES = {"Equinox": equinox_model}
