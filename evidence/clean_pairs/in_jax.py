"""The model in plain JAX, in several hands."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from einops import rearrange

from evidence.clean_pairs import weights as W


def norm(x, scale, bias):
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + W.EPSILON) * scale + bias


def embed(w, x):
    x = jax.lax.conv_general_dilated(
        x, w["patch_embed.proj.weight"].transpose(2, 3, 1, 0), (W.PATCH, W.PATCH), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    x = x.reshape(x.shape[0], -1, W.D) + w["patch_embed.proj.bias"]
    cls = jnp.broadcast_to(w["cls_token"], (x.shape[0], 1, W.D))
    return jnp.concatenate([cls, x], axis=1) + w["pos_embed"]


def block(p, x):
    y = norm(x, p["norm1.weight"], p["norm1.bias"])
    qkv = y @ p["attn.qkv.weight"].T + p["attn.qkv.bias"]
    q, k, v = jnp.moveaxis(qkv.reshape(*qkv.shape[:-1], 3, W.HEADS, W.HEAD_DIM), -3, 0)
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / jnp.sqrt(W.HEAD_DIM)
    y = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v)
    x = x + y.reshape(x.shape) @ p["attn.proj.weight"].T + p["attn.proj.bias"]
    y = norm(x, p["norm2.weight"], p["norm2.bias"])
    y = jax.nn.gelu(y @ p["mlp.fc1.weight"].T + p["mlp.fc1.bias"], approximate=False)
    return x + y @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"]


def head(w, x):
    x = norm(x, w["norm.weight"], w["norm.bias"])[:, 0]
    return x @ w["head.weight"].T + w["head.bias"]


def forward(w, x, block=block):
    x = embed(w, x)
    for i in range(W.DEPTH):
        x = block(W.block(w, i), x)
    return head(w, x)


def given(w):
    return {name: jnp.asarray(each) for name, each in w.items()}, W.images(channels_last=True)


def plain(w):
    """A function of a dictionary."""
    return forward, given(w)


def compiled(w):
    """jax.jit, with each block jitted, too."""
    return jax.jit(functools.partial(forward, block=jax.jit(block))), given(w)


def rematerialised(w):
    """jax.checkpoint around each block."""
    return functools.partial(forward, block=jax.checkpoint(block)), given(w)


def mapped(w):
    """jax.vmap over images."""
    w, x = given(w)
    return jax.vmap(lambda w, x: forward(w, x[None])[0], (None, 0)), (w, x)


def stacked(w):
    names = W.block(w, 0)
    return {n: jnp.stack([w[f"blocks.{i}.{n}"] for i in range(W.DEPTH)]) for n in names}


def scanned(w):
    """jax.lax.scan over stacked layers."""
    w, x = given(w)
    rest = {name: each for name, each in w.items() if not name.startswith("blocks")}

    def model(params, x):
        rest, layers = params["rest"], params["layers"]
        x, _ = jax.lax.scan(lambda x, p: (block(p, x), None), embed(rest, x), layers)
        return head(rest, x)

    return model, ({"rest": rest, "layers": stacked(w)}, x)


def looped(w):
    """jax.lax.fori_loop over stacked layers, which it slices."""
    _, given = scanned(w)

    def model(params, x):
        def step(i, x):
            return block(jax.tree.map(lambda p: p[i], params["layers"]), x)

        return head(params["rest"], jax.lax.fori_loop(0, W.DEPTH, step, embed(params["rest"], x)))

    return model, given


def bound(w):
    """functools.partial with the weights."""
    w, x = given(w)
    return functools.partial(forward, w), x


def einops_block(p, x):
    """Heads are axes of the weights, norms have no products of their own."""
    mean, second = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
    y = (x - mean) / jnp.sqrt(second - mean**2 + W.EPSILON)
    y = y * p["norm1.weight"] + p["norm1.bias"]
    q, k, v = (
        jnp.einsum("btD,Dhd->bthd", y, rearrange(m, "(h d) D -> D h d", h=W.HEADS))
        + rearrange(b, "(h d) -> h d", h=W.HEADS)
        for m, b in zip(
            jnp.split(p["attn.qkv.weight"], 3), jnp.split(p["attn.qkv.bias"], 3), strict=True
        )
    )
    y = jax.nn.dot_product_attention(q, k, v, implementation="xla")
    out = rearrange(p["attn.proj.weight"], "D (h d) -> h d D", h=W.HEADS)
    x = x + jnp.einsum("bthd,hdD->btD", y, out) + p["attn.proj.bias"]
    y = jax.nn.standardize(x, -1, epsilon=W.EPSILON) * p["norm2.weight"] + p["norm2.bias"]
    y = jnp.einsum("btd,md->btm", y, p["mlp.fc1.weight"]) + p["mlp.fc1.bias"]
    y = y * jax.scipy.stats.norm.cdf(y)
    return x + (jnp.einsum("btm,dm->btd", y, p["mlp.fc2.weight"]) + p["mlp.fc2.bias"])


def einsums(w):
    """einsum and einops everywhere, fused attention."""
    return functools.partial(forward, block=einops_block), given(w)


def patches(w):
    """A reshape and a product instead of the convolution; tokens first."""
    w, x = given(w)

    def model(w, x):
        x = rearrange(x, "b (h p) (w q) c -> (h w) b (c p q)", p=W.PATCH, q=W.PATCH)
        x = x @ w["patch_embed.proj.weight"].reshape(W.D, -1).T + w["patch_embed.proj.bias"]
        x = jnp.pad(x, ((1, 0), (0, 0), (0, 0)))
        x = x.at[0].set(w["cls_token"][0]) + w["pos_embed"][0][:, None]
        for i in range(W.DEPTH):
            x = jax.vmap(functools.partial(block, W.block(w, i)), 2, 2)(x[None])[0]
        return head(w, jnp.swapaxes(x, 0, 1))

    return model, (w, x)


STYLES = {
    "plain function": plain,
    "jax.jit": compiled,
    "jax.checkpoint": rematerialised,
    "jax.vmap": mapped,
    "lax.scan": scanned,
    "lax.fori_loop": looped,
    "functools.partial": bound,
    "einsum": einsums,
    "tokens first": patches,
}
