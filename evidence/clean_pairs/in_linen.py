"""The model in Flax Linen: named, with names that Flax makes, under a scan with and without remat."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from evidence.clean_pairs import flax_trees as T
from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import EVERY, RIGHT, Side, Style


class Shared(linen.Module):
    """What every module here has."""

    size: Any
    wrong: Any = RIGHT
    dtype: Any = None

    def norm(self, name=None, epsilon=None):
        epsilon = epsilon or (1e-5 if self.wrong("every epsilon") else self.size.epsilon)
        return linen.LayerNorm(epsilon=epsilon, name=name, dtype=self.dtype)

    def dense(self, width, name=None):
        return linen.Dense(width, name=name, dtype=self.dtype)

    def gamma(self, y, number):
        number = 3 - number if self.wrong("gammas exchanged") else number
        if self.size.gamma is None:
            return y
        factors = self.param(f"gamma{number}", linen.initializers.ones, (self.size.width,))
        factors = jax.lax.stop_gradient(factors) if self.wrong("detached gamma") else factors
        return y * factors.astype(y.dtype)  # wrong: detached gamma, gammas exchanged

    def act(self, y, i=None):
        if self.size.relu:
            return linen.relu(y)
        return linen.gelu(y, approximate=self.wrong("tanh gelu", i))

    def embed(self, x, name):
        size, zeros = self.size, linen.initializers.zeros
        step = (size.patch, size.patch)
        x = linen.Conv(size.width, step, step, "VALID", name=name, dtype=self.dtype)(
            J.pixels(x, self.wrong)
        )
        shapes = {
            "cls_token": (1, 1),
            "reg_token": (1, size.registers),
            "pos_embed": (1, size.positions),
        }
        held = {
            timm: self.param(timm[:3], zeros, (*shape, size.width)).astype(x.dtype)
            for timm, shape in shapes.items()
            if shape[1] and (timm != "cls_token" or size.class_token)
        }
        return J.assemble(held, x.reshape(len(x), -1, size.width), size, self.wrong)


class Block(Shared):
    """Its parts are named, attention is Flax's own."""

    number: int | None = None

    @linen.compact
    def __call__(self, x, _=None):
        wrong, i = self.wrong, self.number
        y = self.norm("norm1", 1e-5 if wrong("epsilon", i) else None)(x)  # wrong: every epsilon
        attend = linen.MultiHeadDotProductAttention(
            self.size.heads, deterministic=True, name="attn", dtype=self.dtype
        )
        mask = linen.make_causal_mask(x[..., 0]) if wrong("causal mask", i) else None
        y = self.gamma(attend(y, mask=mask), 1)  # wrong: causal mask
        skip = jax.lax.stop_gradient(x) if wrong("detached skip", i) else x
        x = y if wrong("no residual", i) else skip + y  # wrong: detached skip
        y = self.norm("norm2")(x)  # wrong: every epsilon, no residual
        y = jax.lax.stop_gradient(y) if wrong("detached mlp", i) else y
        y = self.act(self.dense(self.size.hidden, "fc1")(y), i)  # wrong: tanh gelu, detached mlp
        return x + self.gamma(self.dense(self.size.width, "fc2")(y), 2), None  # wrong: no residual


class FusedBlock(Shared):
    """One packed projection; norms and the layers of the MLP have the names that Flax gives them."""

    number: int | None = None

    @linen.compact
    def __call__(self, x, _=None):
        wrong, i, size = self.wrong, self.number, self.size
        y = self.norm(epsilon=1e-5 if wrong("epsilon", i) else None)(x)  # wrong: every epsilon
        qkv = self.dense(3 * size.width, "qkv")(y)
        inner = (*x.shape[:-1], size.heads, size.head_dim)
        q, k, v = (each.reshape(inner) for each in jnp.split(qkv, 3, -1))
        if wrong("packing", i):
            q, k, v = jnp.moveaxis(qkv.reshape(*inner[:-1], 3, size.head_dim), -2, 0)  # wrong: packing
        if size.qk_norm:
            q, k = self.norm("q_norm")(q), self.norm("k_norm")(k)
        y = linen.dot_product_attention(q, k, v, dtype=self.dtype).reshape(x.shape)  # wrong: packing
        x = x + self.gamma(self.dense(size.width, "out")(y), 1)
        y = self.norm()(x)  # wrong: every epsilon
        y = jax.lax.stop_gradient(y) if wrong("detached mlp", i) else y
        # wrong: tanh gelu, detached mlp
        y = self.dense(size.width)(self.act(self.dense(size.hidden)(y), i))
        return x + self.gamma(y, 2), None


class ViT(Shared):
    """Blocks of either kind, one by one or scanned."""

    fused: bool = False
    scan: str = ""
    names: tuple[str, str, str] = ("patches", "norm", "head")

    @linen.compact
    def __call__(self, x):
        size, wrong = self.size, self.wrong
        x = self.embed(x, self.names[0])
        block = FusedBlock if self.fused else Block
        depth = size.depth - wrong("last block not called")
        if self.scan:
            block = linen.remat(block) if self.scan == "remat" else block
            block = linen.scan(block, variable_axes={"params": 0}, split_rngs={"params": True},
                               length=depth)  # fmt: skip
            # wrong: layers reversed, layers as strings
            x, _ = block(size, wrong, self.dtype, name="layers")(x, None)
        else:
            for i in range(depth):
                x, _ = block(size, wrong, self.dtype, i, name=f"encoderblock_{i}")(x)
        if not wrong("no last norm"):
            x = self.norm(self.names[1])(x)  # wrong: every epsilon, last block not called
        return self.dense(size.classes, self.names[2])(J.pool(x, size, wrong))  # wrong: no last norm


def tree_of_block(size):
    return lambda p: {
        "norm1": T.scale(p, "norm1"), "attn": T.attention(p, size), "norm2": T.scale(p, "norm2"),
        "fc1": T.dense(p, "mlp.fc1"), "fc2": T.dense(p, "mlp.fc2"), **T.gammas(p),
    }  # fmt: skip


def _fused(p):
    tree = {
        "LayerNorm_0": T.scale(p, "norm1"), "LayerNorm_1": T.scale(p, "norm2"),
        "qkv": T.dense(p, "attn.qkv"), "out": T.dense(p, "attn.proj"),
        "Dense_0": T.dense(p, "mlp.fc2"), "Dense_1": T.dense(p, "mlp.fc1"), **T.gammas(p),
    }  # fmt: skip
    names = ("q_norm", "k_norm")
    return tree | {n: T.scale(p, f"attn.{n}") for n in names if f"attn.{n}.weight" in p}


def _make(*, fused=False, scan="", names=("patches", "norm", "head")):
    def make(w, size, wrong=RIGHT, dtype=None):
        trees = T.layers(w, size, _fused if fused else tree_of_block(size), wrong)
        inner = (
            {"layers": T.stack(trees)} if scan else {f"encoderblock_{i}": t for i, t in enumerate(trees)}
        )
        params = T.outer(w, names) | inner
        return Side(ViT(size, wrong, dtype, fused, scan, names), {"params": params})

    return make


FAULTS = frozenset({
    "epsilon", "every epsilon", "tanh gelu", "detached mlp", "last block not called", "no last norm",
    "detached positions", "positions shifted", "channels reversed", "constants of pixels",
    "layers reversed", "layers as strings", "gammas exchanged", "detached gamma", "prefix in mean",
    "second token",
})  # fmt: skip
WHOLE = FAULTS | {"causal mask", "detached skip", "no residual"}
PACKED, OWN = FAULTS | {"packing"}, EVERY - {"qk norm"}
NAMES = ("embedding", "encoder_norm", "head")
STYLES = [
    Style("Linen, MultiHeadDotProductAttention", "JAX, Linen", _make(), OWN, WHOLE, typed=True),
    Style("Linen, encoderblock_0 and LayerNorm_0", "JAX, Linen", _make(fused=True, names=NAMES),
          faults=PACKED, typed=True),
    Style("Linen, scan", "JAX, Linen", _make(scan="plain"), OWN, WHOLE, typed=True),
    Style("Linen, scan of remat, fused", "JAX, Linen", _make(fused=True, scan="remat"), faults=PACKED,
          typed=True),
]  # fmt: skip
