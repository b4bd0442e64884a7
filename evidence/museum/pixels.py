"""Pixels on their way to tokens and back."""

import jax.numpy as jnp
import numpy as np
import torch
from einops import rearrange
from torch import nn

from evidence.museum.exhibits import B, D, drawn, exhibit, torched, weights

P, ROWS, COLUMNS = 2, 3, 5
"""Side of a patch; patches down and across."""


def image() -> np.ndarray:
    """Pixels from 0 to 255, (B, H, W, C)."""
    return np.random.default_rng(3).integers(0, 256, (B, ROWS * P, COLUMNS * P, 3)).astype(np.float64)


def first() -> np.ndarray:
    """The same, (B, C, H, W)."""
    return image().transpose(0, 3, 1, 2)


def embed(p, x):
    """Patches in the order of einops, (p1 p2 c)."""
    x = rearrange(x, "b (h p1) (w p2) c -> b (h w) (p1 p2 c)", p1=P, p2=P)
    return jnp.tanh(x @ p["embed"])


@exhibit(
    "facebookresearch/dinov2/issues/223",
    "Pixels of an array are not divided by 255.",
    "scale left out",
    "factor",
)
def pixels_not_divided():
    p = weights(embed=(P * P * 3, D))

    def right(p, x):
        return embed(p, (x / 255 - 0.45) / 0.22)

    def wrong(p, x):
        x = (x - 0.45) / 0.22  # wrong
        return embed(p, x)

    return (right, (p, image())), (wrong, (p, image()))


@exhibit(
    "staghado/vit.cpp/issues/18",
    "ImageNet's mean and deviation, where the weights want one half.",
    "numbers",
)
def pixels_of_imagenet():
    p = weights(embed=(P * P * 3, D))

    def right(embed, x):
        x = (x - 127.5) / 127.5
        return torch.tanh(rearrange(x, "b c (h i) (w j) -> b (h w) (i j c)", i=P, j=P) @ embed)

    def wrong(p, x):
        mean, std = jnp.array([123.675, 116.28, 103.53]), jnp.array([58.395, 57.12, 57.375])
        x = (x - mean) / std  # wrong
        return embed(p, x)

    return (right, {**torched(p), "x": torch.from_numpy(first())}), (wrong, (p, image()))


@exhibit(
    "mlfoundations/open_clip/issues/204", "OpenAI's normalisation, where one half belongs.", "numbers"
)
def pixels_of_openai():
    p = weights(embed=(P * P * 3, D))

    def right(p, x):
        return embed(p, (x / 255 - 0.5) / 0.5)

    def wrong(p, x):
        mean = jnp.array([0.48145466, 0.4578275, 0.40821073])
        std = jnp.array([0.26862954, 0.26130258, 0.27577711])
        return embed(p, (x / 255 - mean) / std)  # wrong

    return (right, (p, image())), (wrong, (p, image()))


@exhibit(
    "jaehyunnn/ViTPose_pytorch/issues/17", "Pixels are divided by 255 and not normalised.", "left out"
)
def pixels_not_normalised():
    p = weights(embed=(P * P * 3, D))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])

    def right(p, x):
        return embed(p, (x / 255 - mean) / std)

    def wrong(embed, x):
        x = x / 255  # wrong
        x = rearrange(x, "b c (h i) (w j) -> b (h w) (i j c)", i=P, j=P)  # wrong
        return torch.tanh(x @ embed)

    return (right, (p, image())), (wrong, {**torched(p), "x": torch.from_numpy(first())})


@exhibit(
    "gupta-abhay/pytorch-vit/issues/7",
    "Unfolded patches are flattened with the channels in front.",
    "transposed",
    "reshaped without moving axes",
)
def channels_in_front():
    p = weights(embed=(P * P * 3, D))

    def right(embed, x):
        x = x.unfold(2, P, P).unfold(3, P, P).flatten(2, 3)
        return torch.tanh(x.permute(0, 2, 1, 3, 4).flatten(2) @ embed)

    def wrong(embed, x):
        x = x.unfold(2, P, P).unfold(3, P, P).contiguous()
        x = x.view(B, -1, P * P * 3)  # wrong
        return torch.tanh(x @ embed)

    sides = {**torched(p), "x": torch.from_numpy(first())}
    return (right, sides), (wrong, sides)


@exhibit(
    "duoan/TorchCode/issues/21",
    "An image is viewed as patches.",
    "transposed",
    "reshaped without moving axes",
)
def image_viewed_as_patches():
    p = weights(embed=(P * P * 3, D))

    def right(p, x):
        x = x.reshape(B, 3, ROWS, P, COLUMNS, P).transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, 3 * P * P)
        return jnp.tanh(x @ p["embed"])

    def wrong(embed, x):
        x_new = x.reshape(B, ROWS * COLUMNS, -1)  # wrong
        return torch.tanh(x_new @ embed)

    return (right, (p, first())), (wrong, {**torched(p), "x": torch.from_numpy(first())})


@exhibit(
    "cloneofsimo/minRF/issues/6",
    "Channels are last where patches are put together, first where not.",
    "transposed",
    "reshaped without moving axes",
)
def channels_last_when_put_together():
    x = drawn(B, ROWS * COLUMNS, 3 * P * P)

    def right(x):
        x = x.reshape(B, ROWS, COLUMNS, 3, P, P)
        return jnp.einsum("nhwcpq->nchpwq", x).reshape(B, 3, ROWS * P, COLUMNS * P) * 0.5

    def wrong(x):
        x = x.reshape(B, ROWS, COLUMNS, P, P, 3)  # wrong
        return torch.einsum("nhwpqc->nchpwq", x).reshape(B, 3, ROWS * P, COLUMNS * P) * 0.5  # wrong

    return (right, x), (wrong, torch.from_numpy(x))


@exhibit(
    "lightly-ai/lightly-train/pull/119",
    "Tokens are reshaped to a map without moving the channels first.",
    "transposed",
    "reshaped without moving axes",
)
def tokens_reshaped_to_a_map():
    x, p = drawn(B, ROWS * COLUMNS, D), weights(conv=(4, D, 2, 2))

    def right(conv, x):
        x = x.permute(0, 2, 1).reshape(B, D, ROWS, COLUMNS)
        return nn.functional.conv2d(x, conv)

    def wrong(conv, x):
        x = x.reshape(B, D, ROWS, COLUMNS)  # wrong
        return nn.functional.conv2d(x, conv)

    sides = {**torched(p), "x": torch.from_numpy(x)}
    return (right, sides), (wrong, sides)
