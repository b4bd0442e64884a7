"""Pixels through Keras' Rescaling and Normalization into a patch embedding, against torch."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import torch
import torch.nn.functional as F
from keras import layers

from draw import FLOAT64, to_jax, to_torch
from preprocess import MEAN, STD, inputs

if FLOAT64:
    keras.config.set_floatx("float64")
D, P = 9, 5


def side_torch():
    weight, pixels = inputs(to_torch)

    def embed(pixels):
        x = (pixels / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        return F.conv2d(x.permute(0, 3, 1, 2), weight, stride=P).permute(0, 2, 3, 1)

    return embed, (pixels,)


def model(normalise):
    weight = inputs(lambda v: v)[0]
    net = keras.Sequential([keras.Input((10, 15, 3)), *normalise, layers.Conv2D(D, P, strides=P, use_bias=False, name="embed")])
    net.get_layer("embed").set_weights([weight.transpose(2, 3, 1, 0)])
    return net, (inputs(to_jax)[1],)


def side_keras():
    return model([layers.Rescaling(1 / 255), layers.Normalization(mean=MEAN, variance=[s**2 for s in STD])])


def side_wrong():
    return model([layers.Rescaling(scale=1 / 127.5, offset=-1.0)])  # !wrong
