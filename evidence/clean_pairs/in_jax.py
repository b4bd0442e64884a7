"""The model in plain JAX, in several hands; each function makes a `Side` of weights by timm's names."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.sharding import AxisType, PartitionSpec

from evidence.clean_pairs import jax_parts as J
from evidence.clean_pairs.style import RIGHT, Side, Style
from evidence.clean_pairs.weights import block as weights_of


def plain(w, size, wrong=RIGHT):
    """A function of a dictionary."""
    return Side(lambda w, x: J.forward(w, x, size, wrong), w)


def compiled(w, size, wrong=RIGHT):
    """jax.jit, with each block jitted, too."""
    inner = jax.jit(J.block, static_argnums=(2, 3, 4))
    return Side(jax.jit(lambda w, x: J.forward(w, x, size, wrong, inner)), w)


def rematerialised(w, size, wrong=RIGHT):
    """jax.checkpoint around each block."""
    inner = jax.checkpoint(J.block, static_argnums=(2, 3, 4))
    return Side(lambda w, x: J.forward(w, x, size, wrong, inner), w)


def mapped(w, size, wrong=RIGHT):
    """jax.vmap over images."""
    return Side(jax.vmap(lambda w, x: J.forward(w, x[None], size, wrong)[0], (None, 0)), w)


def stacked(w, size, wrong=RIGHT):
    """The weights outside of the blocks, and each of theirs as one array."""
    rest = {name: each for name, each in w.items() if not name.startswith("blocks")}
    blocks = [weights_of(w, i) for i in J.order(size, wrong)]
    return {"rest": rest, "layers": {n: jnp.stack([b[n] for b in blocks]) for n in blocks[0]}}


def scanned(w, size, wrong=RIGHT):
    """jax.lax.scan over stacked layers."""

    def model(p, x):
        x = J.embed(p["rest"], x, size, wrong)
        # wrong: layers reversed, layers as strings
        x, _ = jax.lax.scan(lambda x, p: (J.block(p, x, size, wrong), None), x, p["layers"])
        return J.head(p["rest"], x, size, wrong)  # wrong: last block not called

    return Side(model, stacked(w, size, wrong))


def looped(w, size, wrong=RIGHT):
    """jax.lax.fori_loop over stacked layers, which it slices; vmapped blocks."""

    def model(p, x):
        def step(i, x):
            # wrong: layers reversed, layers as strings
            one = jax.tree.map(lambda each: each[i], p["layers"])
            return J.block(one, x, size, wrong)

        count = len(p["layers"]["norm1.weight"])
        x = jax.lax.fori_loop(0, count, step, J.embed(p["rest"], x, size, wrong))
        return J.head(p["rest"], x, size, wrong)  # wrong: last block not called

    return Side(model, stacked(w, size, wrong))


def scanned_and_jitted(w, size, wrong=RIGHT):
    """lax.scan of jitted, rematerialised blocks, under jit and vmap."""

    def one(p, image):
        x = J.embed(p["rest"], image[None], size, wrong)
        inner = jax.jit(jax.checkpoint(lambda p, x: J.block(p, x, size, wrong)))
        # wrong: layers reversed, layers as strings
        x, _ = jax.lax.scan(lambda x, p: (inner(p, x), None), x, p["layers"])
        return J.head(p["rest"], x, size, wrong)[0]  # wrong: last block not called

    return Side(jax.jit(jax.vmap(one, (None, 0))), stacked(w, size, wrong))


def bound(w, size, wrong=RIGHT):
    """functools.partial with the weights."""
    return Side(functools.partial(lambda w, x: J.forward(w, x, size, wrong), w))


def sharded(w, size, wrong=RIGHT):
    """jax.shard_map over one device."""
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:1])
    spec = PartitionSpec("data")

    def model(w, x):
        run = lambda w, x: J.forward(w, x, size, wrong)  # noqa: E731
        return jax.shard_map(run, mesh=mesh, in_specs=(PartitionSpec(), spec), out_specs=spec)(w, x)

    return Side(model, w)


def _einsum_block(p, x, size, wrong=RIGHT, i=None):
    """Heads are axes of the weights, norms have no products of their own."""
    mean, second = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
    epsilon = 1e-5 if wrong("epsilon", i) else size.epsilon
    y = (x - mean) / jnp.sqrt(second - mean**2 + epsilon)  # wrong: epsilon
    y = y * p["norm1.weight"] + p["norm1.bias"]
    order = "(d h)" if wrong("head order", i) else "(h d)"
    q, k, v = (
        # wrong: head order
        jnp.einsum("btD,Dhd->bthd", y, rearrange(m, f"{order} D -> D h d", h=size.heads))
        + rearrange(b, f"{order} -> h d", h=size.heads)  # wrong: head order
        for m, b in zip(
            jnp.split(p["attn.qkv.weight"], 3), jnp.split(p["attn.qkv.bias"], 3), strict=True
        )
    )
    if size.qk_norm:
        q, k = J.norm(q, p, "attn.q_norm", size), J.norm(k, p, "attn.k_norm", size)
    scores = jnp.einsum("bihd,bjhd->bhij", q, k)
    scores = scores if wrong("no scale", i) else scores / math.sqrt(size.head_dim)
    y = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v)  # wrong: no scale
    out = rearrange(p["attn.proj.weight"], "D (h d) -> h d D", h=size.heads)
    x = x + J.gamma(p, jnp.einsum("bthd,hdD->btD", y, out) + p["attn.proj.bias"], 1, wrong, i)
    y = jax.nn.standardize(x, -1, epsilon=size.epsilon)
    y = y * p["norm2.weight"] + (0 if wrong("no norm bias", i) else p["norm2.bias"])
    y = jnp.einsum("btd,md->btm", y, p["mlp.fc1.weight"]) + p["mlp.fc1.bias"]  # wrong: no norm bias
    y = jax.nn.relu(y) if size.relu else y * jax.scipy.stats.norm.cdf(y)
    return x + J.gamma(
        p, jnp.einsum("btm,dm->btd", y, p["mlp.fc2.weight"]) + p["mlp.fc2.bias"], 2, wrong, i
    )


def einsums(w, size, wrong=RIGHT):
    """einsum and einops everywhere."""
    return Side(lambda w, x: J.forward(w, x, size, wrong, _einsum_block), w)


def tokens_first(w, size, wrong=RIGHT):
    """A reshape and a product instead of the convolution; blocks mapped over images."""

    def model(w, x):
        axes = "b (h p) (w q) c -> b (h w) " + ("(c q p)" if wrong("pixels transposed") else "(c p q)")
        # wrong: pixels transposed, channels reversed
        x = rearrange(J.pixels(x, wrong), axes, p=size.patch, q=size.patch)
        # wrong: pixels transposed, constants of pixels
        x = x @ w["patch_embed.proj.weight"].reshape(size.width, -1).T + w["patch_embed.proj.bias"]
        x = J.assemble(w, x, size, wrong).swapaxes(0, 1)
        for i, which in enumerate(J.order(size, wrong)):
            # wrong: layers reversed, layers as strings
            one = functools.partial(J.block, weights_of(w, which), size=size, wrong=wrong, i=i)
            x = jax.vmap(one, 2, 2)(x[None])[0]
        return J.head(w, jnp.swapaxes(x, 0, 1), size, wrong)  # wrong: last block not called

    return Side(model, w)


ALL = J.FAULTS | J.EXTRA
FEW = frozenset({
    "epsilon", "head order", "no scale", "no norm bias", "gammas exchanged", "detached gamma",
})  # fmt: skip
STYLES = [
    Style("plain function", "JAX, functions", plain, faults=ALL),
    Style("jax.jit", "JAX, functions", compiled, faults=ALL),
    Style("jax.checkpoint", "JAX, functions", rematerialised, faults=ALL),
    Style("jax.vmap", "JAX, functions", mapped, faults=ALL),
    Style("functools.partial", "JAX, functions", bound, faults=ALL),
    Style("jax.shard_map", "JAX, functions", sharded, faults=ALL),
    Style("einsum", "JAX, functions", einsums, faults=FEW),
    Style("tokens first", "JAX, functions", tokens_first, faults=ALL),
    Style("lax.scan", "JAX, stacked layers", scanned, faults=ALL),
    Style("lax.fori_loop", "JAX, stacked layers", looped, faults=ALL),
    Style("scan of jit of checkpoint in vmap", "JAX, stacked layers", scanned_and_jitted, faults=ALL),
]
