"""Two ConvNeXt blocks with a downsampling layer: torch (N, C, H, W) against Flax Linen (N, H, W, C)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flax.linen as fnn
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

C, OUT, H, W = 6, 7, 6, 10


def weights(seed=401):
    d = Draw(seed)
    block = lambda c: {"dw": (d.mat(c, 1, 7, 7, fan=30), d.vec(c)), "norm": (d.gain(c), d.vec(c)), "pw1": (d.mat(4 * c, c), d.vec(4 * c)),
                       "pw2": (d.mat(c, 4 * c), d.vec(c)), "gamma": d.vec(c) * 2}
    return {"b0": block(C), "down_norm": (d.gain(C), d.vec(C)), "down": (d.mat(OUT, C, 2, 2, fan=4 * C), d.vec(OUT)), "b1": block(OUT)}


def pictures(cast):
    return (cast(Draw(402).data(2, H, W, C)),)


def load(layer, pair):
    layer.weight.data, layer.bias.data = pair
    return layer


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        c = len(w["gamma"])
        self.dwconv = load(nn.Conv2d(c, c, 7, padding=3, groups=c), w["dw"])
        self.norm = load(nn.LayerNorm(c, eps=1e-6), w["norm"])
        self.pwconv1, self.pwconv2 = load(nn.Linear(c, 4 * c), w["pw1"]), load(nn.Linear(4 * c, c), w["pw2"])
        self.gamma = nn.Parameter(w["gamma"])

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class Downsample(nn.Module):
    """LayerNorm over channels with channels first, then a 2 x 2 convolution."""

    def __init__(self, w):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(v) for v in w["down_norm"])
        self.conv = load(nn.Conv2d(C, OUT, 2, stride=2), w["down"])

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.conv(self.weight[:, None, None] * x + self.bias[:, None, None])


class Stage(nn.Sequential):
    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def side_torch():
    w = to_torch(weights())
    return Stage(Block(w["b0"]), Downsample(w), Block(w["b1"])).eval(), pictures(to_torch)


class LinenBlock(fnn.Module):
    dim: int

    @fnn.compact
    def __call__(self, x):
        y = fnn.Conv(self.dim, (7, 7), feature_group_count=self.dim, name="dw")(x)
        y = fnn.LayerNorm(epsilon=1e-6, name="norm")(y)
        y = fnn.gelu(fnn.Dense(4 * self.dim, name="pw1")(y), approximate=False)
        return x + self.param("gamma", fnn.initializers.ones, (self.dim,)) * fnn.Dense(self.dim, name="pw2")(y)


class LinenStage(fnn.Module):
    whole_picture: bool = False

    @fnn.compact
    def __call__(self, x):
        x = LinenBlock(C, name="b0")(x)
        if self.whole_picture:
            x = fnn.GroupNorm(num_groups=1, epsilon=1e-6, name="down_norm")(x)  # !wrong
        else:
            x = fnn.LayerNorm(epsilon=1e-6, name="down_norm")(x)
        x = fnn.Conv(OUT, (2, 2), strides=2, padding="VALID", name="down")(x)
        return LinenBlock(OUT, name="b1")(x)


def convert():
    w = weights()
    norm = lambda p: {"scale": p[0], "bias": p[1]}
    dense = lambda p: {"kernel": p[0].T, "bias": p[1]}
    conv = lambda p: {"kernel": p[0].transpose(2, 3, 1, 0), "bias": p[1]}
    block = lambda b: {"dw": conv(b["dw"]), "norm": norm(b["norm"]), "pw1": dense(b["pw1"]), "pw2": dense(b["pw2"]), "gamma": b["gamma"]}
    return to_jax({"params": {"b0": block(w["b0"]), "b1": block(w["b1"]), "down_norm": norm(w["down_norm"]), "down": conv(w["down"])}})


def side_linen():
    return LinenStage().apply, (convert(), *pictures(to_jax))


def side_wrong():
    return LinenStage(whole_picture=True).apply, (convert(), *pictures(to_jax))
