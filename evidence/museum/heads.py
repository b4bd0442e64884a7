"""Heads taken apart and put together again: what moves where."""

import jax
import jax.numpy as jnp
import torch
from torch import nn

from evidence.museum.exhibits import B, D, H, N, exhibit, filled, tokens, weights


class MultiHead(nn.Module):
    """The reference: torch's own."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class ByHand(nn.Module):
    """What the wrong modules have in common; `attend` is theirs."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x):
        packed = nn.functional.linear(
            self.norm(x), self.attention.in_proj_weight, self.attention.in_proj_bias
        )
        return x + self.attention.out_proj(self.attend(*packed.chunk(3, -1)))

    def attend(self, q, k, v):
        raise NotImplementedError


def softmax(q, k):
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)


@exhibit(
    "reczoo/FuxiCTR/issues/30",
    "Heads are split by a view alone, which cuts through the tokens.",
    "transposed",
    "reshaped without moving axes",
)
def heads_by_view():
    class Wrong(ByHand):
        def attend(self, q, k, v):
            q = q.reshape(B * H, -1, D // H)  # wrong
            k = k.reshape(B * H, -1, D // H)  # wrong
            v = v.reshape(B * H, -1, D // H)  # wrong
            return (softmax(q, k) @ v).reshape(B, -1, D)

    return (filled(MultiHead()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "jsbaan/transformer-from-scratch/pull/6",
    "Heads are merged without a permute before the reshape.",
    "transposed",
    "reshaped without moving axes",
)
def merged_without_permute():
    class Wrong(ByHand):
        def attend(self, q, k, v):
            q, k, v = (each.view(B, N, H, -1).permute(0, 2, 1, 3) for each in (q, k, v))
            values = softmax(q, k) @ v
            return values.reshape(B, N, D)  # wrong

    return (filled(MultiHead()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "649453932/Chinese-Text-Classification-Pytorch/issues/10",
    "The same in other hands: the context is viewed, not transposed.",
    "transposed",
    "reshaped without moving axes",
)
def context_by_view():
    p = weights(qkv=(D, 3 * D), out=(D, D))

    def right(qkv, out, x):
        q, k, v = (x @ qkv).chunk(3, -1)
        q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2) for each in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).flatten(2) @ out

    def wrong(p, x):
        q, k, v = jnp.split(x @ p["qkv"], 3, -1)
        q, k, v = (each.reshape(B, N, H, -1).transpose(0, 2, 1, 3) for each in (q, k, v))
        context = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * 6**-0.5) @ v
        context = context.reshape(B, -1, D)  # wrong
        return context @ p["out"]

    return (right, {**p, "x": tokens()}), (wrong, (p, tokens()))


@exhibit(
    "gazelle93/Transformer-Various-Positional-Encoding/issues/1",
    "Heads and images are viewed in the other order than they were folded in.",
    "transposed",
    "reshaped without moving axes",
    "axis split the other way round",
)
def heads_before_images():
    class Wrong(ByHand):
        def attend(self, q, k, v):
            q, k, v = (each.view(B, N, H, -1).transpose(1, 2).flatten(0, 1) for each in (q, k, v))
            output = softmax(q, k) @ v
            output = output.view(H, B, -1, D // H)  # wrong
            return output.permute(1, 2, 0, 3).reshape(B, -1, D)

    return (filled(MultiHead()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "hackiey/QAnet-pytorch/issues/2",
    "A stack of heads is viewed as tokens of all heads.",
    "transposed",
    "reshaped without moving axes",
)
def stack_viewed_as_tokens():
    class Wrong(ByHand):
        def attend(self, q, k, v):
            heads = torch.zeros(H, B, N, D // H)
            for i in range(H):
                part = slice(i * D // H, (i + 1) * D // H)
                heads[i] = softmax(q[..., part], k[..., part]) @ v[..., part]
            return heads.view(B, N, -1)  # wrong

    return (filled(MultiHead()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "rish-16/tokenlearner-pytorch/issues/1",
    "Tokens and images are exchanged by a view.",
    "transposed",
    "reshaped without moving axes",
    "axis split the other way round",
)
def exchanged_by_view():
    class Fuser(nn.Module):
        def __init__(self):
            super().__init__()
            self.mhsa = nn.MultiheadAttention(D, H)

    class Right(Fuser):
        def forward(self, y):
            y = y.transpose(0, 1)
            y, _ = self.mhsa(y, y, y)
            return y.transpose(0, 1)

    class Wrong(Fuser):
        def forward(self, y):
            y = y.view(N, B, D)  # wrong
            y, _ = self.mhsa(y, y, y)
            return y.view(B, N, D)  # wrong

    return (filled(Right()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "MarcoMeter/episodic-transformer-memory-ppo/pull/22",
    "The input is split into heads first, and one small projection serves all of them.",
)
def one_projection_for_all_heads():
    p = weights(keys=(D, D), queries=(D, D), values=(D, D))

    def scores(q, k, v):
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)

    def right(p, x):
        q, k, v = ((x @ p[name]).reshape(B, N, H, -1) for name in ("queries", "keys", "values"))
        return scores(q, k, v).reshape(x.shape)

    def wrong(p, x):
        x = x.reshape(B, N, H, -1)
        q, k, v = (x @ p[name][:6, :6] for name in ("queries", "keys", "values"))  # wrong
        return scores(q, k, v).reshape(B, N, D)

    return (right, (p, tokens())), (wrong, (p, tokens()))
