"""From tokens back to a 3 x 8 x 20 picture, then ImageNet denormalisation: torch against einops on JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp
import torch
from einops import rearrange
from torch import nn

from draw import Draw, to_jax, to_torch

D, P, GH, GW = 11, 4, 2, 5
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def inputs(cast):
    d = Draw(421)
    return cast(d.mat(3 * P * P, D)), cast(d.vec(3 * P * P)), cast(d.data(2, GH * GW, D))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1))

    def forward(self, weight, bias, x):
        x = nn.functional.linear(x, weight, bias).reshape(-1, GH, GW, P, P, 3)
        x = torch.einsum("nhwpqc->nchpwq", x).reshape(-1, 3, GH * P, GW * P)
        return x * self.std + self.mean


def side_torch():
    return Decoder().eval(), inputs(to_torch)


def picture(x, order):
    x = rearrange(x, order, h=GH, p=P, q=P, c=3)
    return x * jnp.array(STD)[:, None, None] + jnp.array(MEAN)[:, None, None]


def side_wrong():
    def decode(weight, bias, x):
        return picture(x @ weight.T + bias, "n (h w) (c p q) -> n c (h p) (w q)")  # !wrong

    return decode, inputs(to_jax)


def side_right():
    return (lambda w, b, x: picture(x @ w.T + b, "n (h w) (p q c) -> n c (h p) (w q)")), inputs(to_jax)
