"""The stream: what is added, to what, and what stands in its place."""

import jax
import jax.numpy as jnp
import torch
from flax import linen
from torch import nn

from evidence.museum.exhibits import (
    D,
    H,
    M,
    N,
    drawn,
    exhibit,
    filled,
    tokens,
    torched,
    weights,
)


class Block(nn.Module):
    """A block before its norms, with the parts that all exhibits have."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, H, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(D, M), nn.GELU(), nn.Linear(M, D))

    def attend(self, x):
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def against(wrong):
    return (filled(Block()), tokens()), (filled(wrong()), tokens())


@exhibit("ChristophReich1996/MaxViT/issues/8", "The second skip connection multiplies.", "operation")
def skip_that_multiplies():
    class Wrong(Block):
        def forward(self, x):
            output = x + self.attend(self.norm1(x))
            return output * self.mlp(self.norm2(output))  # wrong

    return against(Wrong)


@exhibit("explainingai-code/DiT-PyTorch/issues/1", "The attention runs twice, the perceptron never.")
def attention_twice():
    class Wrong(Block):
        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            return x + self.attend(self.norm2(x))  # wrong

    return against(Wrong)


@exhibit("d2l-ai/d2l-en/pull/2283", "The first norm replaces the stream.", "other value read")
def norm_replaces_the_stream():
    class Wrong(Block):
        def forward(self, x):
            x = self.norm1(x)  # wrong
            x = x + self.attend(x)  # wrong
            return x + self.mlp(self.norm2(x))

    return against(Wrong)


@exhibit("Project-MONAI/MONAI/pull/9011", "The second norm replaces the stream.", "other value read")
def second_norm_replaces_the_stream():
    class Wrong(Block):
        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            x = self.norm2(x)  # wrong
            return self.mlp(x) + x  # wrong

    return against(Wrong)


@exhibit("kyegomez/BitNet/issues/32", "What attention put out is added to itself.", "other value read")
def added_to_itself():
    class Wrong(Block):
        def forward(self, x):
            skip = x
            x = self.attend(self.norm1(x))
            x = x + x  # wrong
            assert skip is not x
            return x + self.mlp(self.norm2(x))

    return against(Wrong)


@exhibit(
    "xmu-xiaoma666/External-Attention-pytorch/issues/23",
    "Mixer: what the tokens' perceptron put out is not added to the input.",
    "residual left out",
    "left out",
    "other value read",
)
def mixer_without_skip():
    p = weights(tokens=(N, N), channels=(D, D))

    def norm(x):
        return nn.functional.layer_norm(x, (D,))

    def right(tokens, channels, x):
        y = nn.functional.gelu(norm(x).mT @ tokens).mT
        x = x + y
        return x + nn.functional.gelu(norm(x) @ channels)

    def standardised(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def wrong(p, x):
        y = jax.nn.gelu(standardised(x).swapaxes(1, 2) @ p["tokens"], approximate=False).swapaxes(1, 2)
        y = standardised(y)  # wrong
        return x + jax.nn.gelu(y @ p["channels"], approximate=False)  # wrong

    return (right, {**p, "x": tokens()}), (wrong, (p, tokens()))


@exhibit(
    "riccardomusmeci/mlx-image/pull/26",
    "DINOv2's layer scales are in the file and not in the model.",
    "gain left out",
)
def layer_scale_missing():
    class Encoder(linen.Module):
        init_values: float | None

        @linen.compact
        def __call__(self, x):
            y = linen.Dense(D, name="fc2")(linen.gelu(linen.Dense(M, name="fc1")(x), approximate=False))
            if self.init_values is not None:
                y = y * self.param("gamma", linen.initializers.constant(self.init_values), (D,))
            return x + y  # wrong

    p = weights(fc1=(D, M), fc2=(M, D))
    params = {name: {"kernel": w, "bias": w[0]} for name, w in p.items()}
    right = {"params": params | {"gamma": drawn(D, scale=0.1)}}
    return (Encoder(1e-5), right, tokens()), (Encoder(None), {"params": params}, tokens())


@exhibit(
    "huggingface/pytorch-image-models/pull/2676",
    "Without a table of positions, the class token is dropped, too.",
    "left out",
)
def class_token_dropped():
    p = weights(cls_token=(1, 1, D), head=(D, M))

    def right(cls_token, head, x):
        x = torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1)
        return (x.sum(1) / x.shape[1]).mul(2.0) @ head

    def wrong(p, x):
        return x.sum(1) / x.shape[1] * 2.0 @ p["head"]  # wrong

    return (right, {**p, "x": tokens()}), (wrong, (p, tokens()))


@exhibit(
    "NeuraLegion/shainet/pull/176", "The delta rule's query is not scaled.", "scale left out", "factor"
)
def query_not_scaled():
    p = weights(q=(D, D), k=(D, D), v=(D, D))

    def right(p, x):
        q, k, v = x @ p["q"] * D**-0.5, x @ p["k"], x @ p["v"]
        return jnp.tril(q @ k.swapaxes(1, 2)) @ v

    def wrong(q, k, v, x):
        q, k, v = x @ q, x @ k, x @ v  # wrong
        return (q @ k.mT).tril() @ v  # wrong

    return (right, (p, tokens())), (wrong, {**torched(p), "x": torch.from_numpy(tokens())})


@exhibit(
    "huggingface/pytorch-image-models/issues/1851",
    "The perceptron has a norm that it never applies.",
    "norm left out",
    "left out",
)
def norm_never_applied():
    class Mlp(nn.Module):
        def __init__(self, *, applied):
            super().__init__()
            self.fc1, self.act, self.norm = nn.Linear(D, M), nn.GELU(), nn.LayerNorm(M)
            self.fc2, self.applied = nn.Linear(M, D), applied

        def forward(self, x):
            x = self.act(self.fc1(x))  # wrong
            if self.applied:
                x = self.norm(x)
            return self.fc2(x)  # wrong

    return (filled(Mlp(applied=True)), tokens()), (filled(Mlp(applied=False)), tokens())
