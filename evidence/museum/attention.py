"""Scores: their scale, their softmax, their masks."""

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from evidence.museum.exhibits import B, D, H, N, drawn, exhibit, filled, tokens, weights


class Attention(nn.Module):
    """The reference of several exhibits: packed projections, torch's own attention."""

    def __init__(self, scale=None, *, causal=False):
        super().__init__()
        self.to_qkv, self.to_out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.scale, self.causal = scale, causal

    def forward(self, x):
        q, k, v = rearrange(self.to_qkv(x), "b n (t h d) -> t b h n d", t=3, h=H)
        out = F.scaled_dot_product_attention(q, k, v, scale=self.scale, is_causal=self.causal)
        return self.to_out(rearrange(out, "b h n d -> b n (h d)"))


@exhibit(
    "lucidrains/vit-pytorch/issues/65",
    "Scores are scaled by the width of the model, not of a head.",
    "number",
    "factor",
    "scale",
)
def scale_of_the_width():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = D**-0.5
            self.to_qkv, self.to_out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)

        def forward(self, x):
            q, k, v = rearrange(self.to_qkv(x), "b n (t h d) -> t b h n d", t=3, h=H)
            dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale  # wrong
            out = torch.einsum("bhij,bhjd->bhid", dots.softmax(-1), v)
            return self.to_out(rearrange(out, "b h n d -> b n (h d)"))

    return (filled(Attention()), tokens()), (filled(Wrong()), tokens())


@exhibit(
    "tenstorrent/tt-metal/pull/56789",
    "CLIP's scores are divided by the root of the number of heads.",
    "number",
    "factor",
    "scale",
)
def scale_of_the_heads():
    model = filled(Attention())
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x):
        q, k, v = jnp.split(x @ p["to_qkv.weight"].T, 3, -1)
        q, k, v = (each.reshape(B, N, H, -1).transpose(0, 2, 1, 3) for each in (q, k, v))
        scores = q @ k.transpose(0, 1, 3, 2)
        scores = scores / H**0.5  # wrong
        out = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(B, N, D)
        return out @ p["to_out.weight"].T + p["to_out.bias"]

    return (model, tokens()), (wrong, (p, tokens()))


@exhibit(
    "karpathy/ng-video-lecture/pull/6",
    "A causal head scales by the number of channels that come in.",
    "number",
    "factor",
    "scale",
)
def scale_of_the_channels():
    p = weights(query=(D, 6), key=(D, 6), value=(D, 6))

    def right(p, x):
        q, k, v = x @ p["query"], x @ p["key"], x @ p["value"]
        wei = q @ k.swapaxes(-2, -1) * k.shape[-1] ** -0.5
        wei = jnp.where(jnp.tril(jnp.ones((N, N))) == 0, -jnp.inf, wei)
        return jax.nn.softmax(wei, -1) @ v

    def wrong(p, x):
        q, k, v = x @ p["query"], x @ p["key"], x @ p["value"]
        wei = q @ k.swapaxes(-2, -1) * x.shape[-1] ** -0.5  # wrong
        wei = jnp.where(jnp.tril(jnp.ones((N, N))) == 0, -jnp.inf, wei)
        return jax.nn.softmax(wei, -1) @ v

    return (right, (p, tokens())), (wrong, (p, tokens()))


@exhibit(
    "NVIDIA/FasterTransformer/pull/323",
    "The scale that the configuration asks for is not used.",
    "number",
    "factor",
    "scale",
    "scale left out",
)
def scale_of_the_configuration():
    model = filled(Attention(scale=0.3))
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x, qk_scale=0.3):
        qkv = (x @ p["to_qkv.weight"].T).reshape(B, N, 3, H, -1)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        q = q * q.shape[-1] ** -0.5  # wrong
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape)
        return out @ p["to_out.weight"].T + p["to_out.bias"]

    return (model, tokens()), (wrong, (p, tokens()))


@exhibit(
    "huggingface/transformers/pull/43481",
    "Llama 4's eager vision attention recomputes the scale and ignores the one it is given.",
    "number",
    "factor",
    "scale",
)
def scale_that_is_passed():
    q, k, v = (drawn(B, H, N, 6, seed=i) for i in range(3))

    def eager(query, key, value, scaling):
        scores = torch.matmul(query, key.transpose(2, 3)) * scaling
        return torch.matmul(nn.functional.softmax(scores, dim=-1), value).transpose(1, 2)

    def wrong(query, key, value, scaling):
        scores = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5  # wrong
        return torch.matmul(nn.functional.softmax(scores, dim=-1), value).transpose(1, 2)

    sides = {"query": q, "key": k, "value": v, "scaling": 12**-0.5}
    return (eager, sides), (wrong, sides)


@exhibit(
    "labmlai/annotated_deep_learning_paper_implementations/issues/146",
    "The U-Net's softmax runs over the queries.",
    "axis",
)
def softmax_over_queries():
    p = weights(projection=(D, 3 * D), output=(D, D))

    def right(p, x):
        q, k, v = jnp.split((x @ p["projection"]).reshape(B, N, H, -1), 3, -1)
        weights = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, k) * 6**-0.5)
        return jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(x.shape) @ p["output"]

    def wrong(projection, output, x):
        q, k, v = torch.chunk((x @ projection).view(B, N, H, -1), 3, dim=-1)
        attn = torch.einsum("bihd,bjhd->bijh", q, k) * 6**-0.5
        attn = attn.softmax(dim=1)  # wrong
        return torch.einsum("bijh,bjhd->bihd", attn, v).reshape(B, N, -1) @ output

    return (right, (p, tokens())), (wrong, {**p, "x": tokens()})


@exhibit(
    "keras-team/keras/issues/23038",
    "The causal mask is dropped when the scores are asked for, too.",
    "causal mask",
)
def causal_mask_dropped():
    model = filled(Attention(causal=True))
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x, mask=None):
        qkv = (x @ p["to_qkv.weight"].T).reshape(B, N, 3, H, -1)
        query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        scores = jnp.einsum("bqhd,bkhd->bhqk", query * 6**-0.5, key)
        weights = jax.nn.softmax(scores if mask is None else jnp.where(mask, scores, -1e9))  # wrong
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
        return out @ p["to_out.weight"].T + p["to_out.bias"]

    return (model, tokens()), (wrong, (p, tokens()))


@exhibit(
    "om-ai-lab/OmDet/issues/19",
    "Attention without batch_first: the images attend to each other.",
    "transposed",
    "other value read",
)
def batch_is_not_first():
    class Layer(nn.Module):
        def __init__(self, *, batch_first):
            super().__init__()
            self.norm = nn.LayerNorm(D)
            self.self_attn = nn.MultiheadAttention(D, H, batch_first=batch_first)

        def forward(self, src):
            y = self.norm(src)
            return src + self.self_attn(y, y, y)[0]  # wrong

    return (filled(Layer(batch_first=True)), tokens()), (filled(Layer(batch_first=False)), tokens())


@exhibit(
    "lsdefine/attention-is-all-you-need-keras/issues/36",
    "Heads stand before images, but the mask is repeated image by image.",
    "axis split the other way round",
    "mask",
    "repeated in another order",
)
def mask_of_another_image():
    q, k = drawn(B, N, D), drawn(B, N, D, seed=2)
    seen = jnp.arange(N) < jnp.array([4, 7])[:, None]

    def folded(x):
        return x.reshape(B, N, H, -1).transpose(2, 0, 1, 3).reshape(H * B, N, -1)

    def right(q, k, seen):
        scores = jnp.einsum("bqd,bkd->bqk", folded(q), folded(k)) * 6**-0.5
        mask = jnp.tile(seen, (H, 1))
        return jax.nn.softmax(scores + -1e9 * (1 - mask[:, None]))

    def wrong(q, k, seen):
        scores = jnp.einsum("bqd,bkd->bqk", folded(q), folded(k)) * 6**-0.5
        mask = jnp.repeat(seen, H, axis=0)  # wrong
        return jax.nn.softmax(scores + -1e9 * (1 - mask[:, None]))

    return (right, (q, k, seen)), (wrong, (q, k, seen))


@exhibit(
    "mlcommons/algorithmic-efficiency/pull/608",
    "The attention that pools has biases in JAX and none in PyTorch.",
    "one parameter too many",
    "bias",
)
def bias_of_one_side():
    p = weights(probe=(1, 1, D), query=(D, D), key=(D, D), value=(D, D), bias=(D,))

    def right(probe, query, key, value, bias, x):
        heads = [(probe @ query).expand(B, -1, -1), x @ key, x @ value]
        q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2) for each in heads)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def wrong(p, x):
        q = jnp.tile(p["probe"] @ p["query"], (B, 1, 1))
        k, v = x @ p["key"], x @ p["value"] + p["bias"]  # wrong
        q, k, v = (each.reshape(B, -1, H, 6) for each in (q, k, v))
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 6**-0.5)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(B, 1, D)

    return (right, {**p, "x": tokens()}), (wrong, (p, tokens()))
