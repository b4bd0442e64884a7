"""A two-convolution stem with batch norm on a 3 x 10 x 14 picture: torch modules and a Keras Sequential."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import torch
from keras import layers
from torch import nn

from draw import FLOAT64, Draw, to_jax, to_torch

if FLOAT64:
    keras.config.set_floatx("float64")
C1, C2 = 5, 8


def weights(seed=71):
    d = Draw(seed)
    out = []
    for inp, ch in ((3, C1), (C1, C2)):
        out.append({"conv": d.mat(ch, inp, 3, 3, fan=inp * 9), "gamma": d.gain(ch), "beta": d.vec(ch), "mean": d.vec(ch),
                    "var": abs(d.gain(ch)) + d.gain(ch) ** 2})
    return out


def pictures():
    return Draw(72).data(3, 10, 14, 3)


class Stem(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, C1, 3, 2, 1, bias=False), nn.BatchNorm2d(C1), nn.GELU(),
                         nn.Conv2d(C1, C2, 3, 2, 1, bias=False), nn.BatchNorm2d(C2))

    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def side_torch():
    model = Stem()
    for i, w in zip((0, 3), to_torch(weights())):
        model[i].weight = nn.Parameter(w["conv"])
        norm = model[i + 1]
        norm.weight, norm.bias = nn.Parameter(w["gamma"]), nn.Parameter(w["beta"])
        norm.running_mean, norm.running_var = w["mean"], w["var"]
    return model.eval(), (to_torch(pictures()),)


def conv_same(ch):
    return [layers.Conv2D(ch, 3, strides=2, padding="same", use_bias=False)]  # !wrong


def conv_padded(ch):
    return [layers.ZeroPadding2D(1), layers.Conv2D(ch, 3, strides=2, padding="valid", use_bias=False)]


def keras_stem(conv):
    norm = lambda: layers.BatchNormalization(epsilon=1e-5)
    model = keras.Sequential([keras.Input((10, 14, 3)), *conv(C1), norm(), layers.Activation("gelu"), *conv(C2), norm()])
    values = [v for w in weights() for v in (w["conv"].transpose(2, 3, 1, 0), w["gamma"], w["beta"], w["mean"], w["var"])]
    model.set_weights(values)
    return model


def side_wrong():
    return keras_stem(conv_same), (to_jax(pictures()),)


def side_keras():
    return keras_stem(conv_padded), (to_jax(pictures()),)
