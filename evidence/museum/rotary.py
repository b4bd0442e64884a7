"""Rotary positions: pairs, axes, and what is rotated."""

import jax
import jax.numpy as jnp
import torch

from evidence.museum.exhibits import B, H, N, drawn, exhibit

d = 6


def qkv():
    """Queries, keys and values, (B, N, h, d) each."""
    return tuple(drawn(B, N, H, d, seed=i) for i in range(3))


def angles(xp):
    """Compute the angles of every token and pair, (N, d / 2)."""
    return xp.arange(N)[:, None] * 100.0 ** -(2 * xp.arange(d // 2) / d)


def attended(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * d**-0.5)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def by_pairs(x):
    """The reference: neighbours are a pair."""
    cos, sin = (f(jnp.repeat(angles(jnp), 2, -1))[:, None] for f in (jnp.cos, jnp.sin))
    turned = jnp.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return x * cos + turned * sin


def by_halves(x):
    """The other reference: an element and the one half a head further are a pair."""
    cos, sin = (f(jnp.tile(angles(jnp), 2))[:, None] for f in (jnp.cos, jnp.sin))
    return x * cos + jnp.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1) * sin


def right_by_pairs(q, k, v):
    return attended(by_pairs(q), by_pairs(k), v)


def right_by_halves(q, k, v):
    return attended(by_halves(q), by_halves(k), v)


@exhibit(
    "facebookresearch/vjepa2/pull/15",
    "Sines are repeated as a whole, but neighbours are turned.",
    "repeated in another order",
    "axis split the other way round",
)
def repeated_as_a_whole():
    def rotate(x):
        freq = angles(torch)
        emb_sin = freq.sin().repeat(1, 2)[:, None]  # wrong
        emb_cos = freq.cos().repeat(1, 2)[:, None]  # wrong
        y1, y2 = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * emb_cos + torch.stack((-y2, y1), -1).flatten(-2) * emb_sin

    def wrong(q, k, v):
        weights = torch.einsum("bqhd,bkhd->bhqk", rotate(q), rotate(k)) * d**-0.5
        return torch.einsum("bhqk,bkhd->bqhd", weights.softmax(-1), v)

    return (right_by_pairs, qkv()), (wrong, tuple(map(torch.from_numpy, qkv())))


@exhibit(
    "raiyanyahya/how-to-train-your-gpt/pull/7",
    "Halves are turned with the sines of neighbours.",
    "transposed",
    "repeated in another order",
    "axis split the other way round",
    "other value read",
)
def halves_with_sines_of_pairs():
    def rotate(x):
        cos, sin = (f(jnp.repeat(angles(jnp), 2, -1))[:, None] for f in (jnp.cos, jnp.sin))
        half = jnp.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)  # wrong
        return x * cos + half * sin

    return (right_by_pairs, qkv()), (lambda q, k, v: attended(rotate(q), rotate(k), v), qkv())


@exhibit(
    "Tongjilibo/bert4torch/issues/1",
    "Turned pairs are concatenated, where they should be put back in place.",
    "axis split the other way round",
    "transposed",
)
def pairs_concatenated():
    def rotate(x):
        cos, sin = (f(jnp.repeat(angles(jnp), 2, -1))[:, None] for f in (jnp.cos, jnp.sin))
        turned = jnp.concatenate([-x[..., 1::2], x[..., ::2]], -1)  # wrong
        return x * cos + turned * sin

    return (right_by_pairs, qkv()), (lambda q, k, v: attended(rotate(q), rotate(k), v), qkv())


@exhibit(
    "vukrosic/leo-optimizer/pull/2",
    "Queries come as (B, h, N, d), and heads are turned by their number.",
    "other value read",
    "transposed",
)
def turned_by_the_head():
    def rotate(x, positions):
        theta = positions[:, None] * 100.0 ** -(2 * torch.arange(d // 2) / d)
        cos, sin = theta.cos()[None, :, None], theta.sin()[None, :, None]
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)  # wrong

    def wrong(q, k, v):
        q, k = (rotate(each.transpose(1, 2), torch.arange(H)) for each in (q, k))  # wrong
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k) * d**-0.5
        return torch.einsum("bhqk,bkhd->bqhd", weights.softmax(-1), v)

    return (right_by_halves, qkv()), (wrong, tuple(map(torch.from_numpy, qkv())))


@exhibit(
    "labmlai/annotated_deep_learning_paper_implementations/issues/251",
    "The values are rotated twice.",
    "one step too many",
    "other value read",  # the second rotation reads the rotated values where A reads v
)
def values_rotated_twice():
    def right(q, k, v):
        return attended(by_halves(q), by_halves(k), by_halves(v))

    def rotate(x):
        cos, sin = (f(jnp.tile(angles(jnp), 2))[:, None] for f in (jnp.cos, jnp.sin))
        half = jnp.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * cos + half * sin  # wrong

    def wrong(q, k, v):
        return attended(rotate(q), rotate(k), rotate(rotate(v)))  # wrong

    return (right, qkv()), (wrong, qkv())


@exhibit(
    "huggingface/transformers/pull/47403",
    "Cosines of neighbours are used for a rotation by halves.",
    "repeated in another order",
    "axis split the other way round",
)
def cosines_of_neighbours():
    def rotate(x):
        theta = jnp.repeat(angles(jnp), 2, -1)[:, None]  # wrong
        half = jnp.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * jnp.cos(theta) + half * jnp.sin(theta)

    return (right_by_halves, qkv()), (lambda q, k, v: attended(rotate(q), rotate(k), v), qkv())
