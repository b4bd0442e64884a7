"""Norms: their epsilon, their variance, their offset, the axes they run over."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen
from torch import nn

from evidence.museum.exhibits import D, M, N, drawn, exhibit, filled, tokens, weights


class Block(nn.Module):
    """A block with the epsilon and the end to order."""

    def __init__(self, eps=1e-6, *, last=True):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=eps), nn.LayerNorm(D, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(D, M), nn.Linear(M, D)
        self.last = last

    def forward(self, x):
        x = x + self.fc2(nn.functional.gelu(self.fc1(self.norm1(x))))  # wrong
        if not self.last:
            return x  # wrong
        return self.norm2(x)


def small() -> np.ndarray:
    """Tokens in which an epsilon shows."""
    return 0.05 * tokens()


@exhibit(
    "kornia/kornia/pull/2786", "LayerNorm has PyTorch's epsilon, the weights come from JAX.", "epsilon"
)
def epsilon_of_torch():
    model = filled(Block())
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def norm(x, name, eps):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        y = (x - mean) / jnp.sqrt(var + eps)  # wrong
        return y * p[name + ".weight"] + p[name + ".bias"]

    def wrong(x):
        y = jax.nn.gelu(norm(x, "norm1", 1e-5) @ p["fc1.weight"].T + p["fc1.bias"], approximate=False)
        return norm(x + y @ p["fc2.weight"].T + p["fc2.bias"], "norm2", 1e-6)

    return (model, small()), (wrong, small())


@exhibit(
    "kornia/kornia/pull/2786", "The norm after the last block is missing.", "norm left out", "left out"
)
def last_norm_missing():
    return (filled(Block()), small()), (filled(Block(last=False)), small())


@exhibit(
    "keras-team/keras-hub/issues/642",
    "BERT's epsilon is given to the norm of the embeddings and not to those of the layers.",
    "epsilon",
)
def epsilon_of_the_layers():
    class Encoder(linen.Module):
        epsilon: float = 1e-5

        @linen.compact
        def __call__(self, x):
            x = linen.LayerNorm(1e-12, name="embeddings")(x)
            y = linen.gelu(linen.Dense(M, name="intermediate")(x), approximate=False)
            y = linen.Dense(D, name="output")(y)
            return linen.LayerNorm(self.epsilon, name="layer")(x + y)  # wrong

    variables = Encoder().init(jax.random.key(0), small())
    return (Encoder(1e-12), variables, small()), (Encoder(), variables, small())


@exhibit(
    "huggingface/candle/pull/271", "Llama's RMSNorm has 1e-6 where the weights want 1e-5.", "epsilon"
)
def epsilon_of_llama():
    p = weights(norm=(D,), up=(D, M))

    def right(norm, up, x):
        return nn.functional.silu(nn.functional.rms_norm(x, (D,), norm, 1e-5) @ up)

    def wrong(p, x, eps=1e-6):
        scale = jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + eps)  # wrong
        return jax.nn.silu(x * scale * p["norm"] @ p["up"])

    return (right, {**p, "x": small()}), (wrong, (p, small()))


@exhibit("mindspore-lab/mindone/pull/225", "Another framework's default epsilon, 1e-7.", "epsilon")
def epsilon_of_the_framework():
    return (filled(Block(1e-5)), small()), (filled(Block(1e-7)), small())


@exhibit("apple/axlearn/pull/397", "The epsilon that BERT is given is not passed on.", "epsilon")
def epsilon_not_passed_on():
    def encoder(eps):
        layer = nn.TransformerEncoderLayer(D, 5, M, batch_first=True, layer_norm_eps=eps)
        return filled(layer)

    def model(layer):
        return lambda x: layer(x)  # wrong

    return (model(encoder(1e-12)), torch.from_numpy(small())), (
        model(encoder(1e-5)), torch.from_numpy(small()),
    )  # fmt: skip


@exhibit(
    "FluxML/Flux.jl/issues/529", "The norm divides by n - 1 for its variance.", "number", "n - 1 for n"
)
def corrected_variance():
    p = weights(scale=(D,), shift=(D,))

    def right(scale, shift, x):
        return nn.functional.layer_norm(x, (D,), scale, shift)

    def wrong(p, x):
        mean, std = x.mean(-1, keepdims=True), x.std(-1, ddof=1, keepdims=True)  # wrong
        return p["scale"] * (x - mean) / jnp.sqrt(std**2 + 1e-5) + p["shift"]

    return (right, {**p, "x": tokens()}), (wrong, (p, tokens()))


@exhibit(
    "reczoo/FuxiCTR/issues/23", "The norm runs over the fields and their embedding together.", "axis"
)
def norm_over_fields():
    p = weights(mask=(N * D, M))

    def right(p, x):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return ((x - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(len(x), -1) @ p["mask"]

    def wrong(mask, x):
        x = nn.functional.layer_norm(x, (N, D))  # wrong
        return x.flatten(1) @ mask

    return (right, (p, tokens())), (wrong, {**p, "x": tokens()})


class GemmaNorm(nn.Module):
    """Transformers' Gemma: the weight is an offset from one."""

    def __init__(self, offset=1.0):
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.zeros(D)), offset

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * (self.offset + self.weight)  # wrong


def gemma(offset=1.0):
    return filled(nn.Sequential(nn.Linear(D, D), GemmaNorm(offset), nn.Linear(D, M)))


@exhibit(
    "linkedin/Liger-Kernel/issues/74",
    "Gemma's RMSNorm without the one that belongs to its weight.",
    "number",
    "term left out",
)
def offset_missing():
    model = gemma()
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x):
        x = x @ p["0.weight"].T + p["0.bias"]
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
        x = x * p["1.weight"]  # wrong
        return x @ p["2.weight"].T + p["2.bias"]

    return (model, tokens()), (wrong, (p, tokens()))


@exhibit(
    "utensils/mold/pull/1078",
    "The weights hold the one already, and it is added again.",
    "number",
    "one term too many",
    "parameter",
)
def offset_twice():
    folded = gemma(0.0)
    with torch.no_grad():
        folded[1].weight += 1
    again = gemma(1.0)
    with torch.no_grad():
        again[1].weight += 1
    return (folded, tokens()), (again, tokens())


@exhibit(
    "pytorch/executorch/pull/19901", "A checkpoint's norms are loaded without adding one.", "parameter"
)
def offset_not_folded():
    rng = drawn(D, seed=5, scale=0.1)

    class Decoder(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.RMSNorm(epsilon=1e-6, name="attention_norm")(x)  # wrong
            return linen.Dense(M, name="wq")(x)

    def variables(offset):
        kernel = {"kernel": drawn(D, M, seed=6), "bias": drawn(M, seed=8)}
        return {"params": {"attention_norm": {"scale": offset + rng}, "wq": kernel}}

    return (Decoder(), variables(1.0), tokens()), (Decoder(), variables(0.0), tokens())
