"""A uint8-like picture normalised, cut in patches and embedded: torchvision's way against a BGR reader's in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import FLOAT, Draw, to_jax, to_torch

D, P = 9, 5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def inputs(cast):
    d = Draw(441)
    pixels = d.rng.integers(1, 255, (2, 10, 15, 3)).astype(FLOAT)
    return cast(d.mat(D, 3, P, P, fan=75)), cast(pixels)


def side_torch():
    def embed(weight, pixels):
        x = pixels.permute(0, 3, 1, 2) / 255
        x = (x - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)
        return F.conv2d(x, weight, stride=P).flatten(2).transpose(1, 2)

    return embed, inputs(to_torch)


def embed(weight, pixels, wrong=False):
    x = (pixels / 255.0 - jnp.array(MEAN)) / jnp.array(STD)
    if wrong:
        x = x[..., ::-1]  # !wrong
    cut = jax.lax.conv_general_dilated_patches(x, (P, P), (P, P), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return cut.reshape(len(x), -1, 3 * P * P) @ weight.reshape(D, -1).T


def side_jax():
    return embed, inputs(to_jax)


def side_wrong():
    return (lambda w, x: embed(w, x, wrong=True)), inputs(to_jax)
