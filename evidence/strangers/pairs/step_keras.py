"""A Keras 3 optimizer driven by stateless calls and jax.grad, against torch."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import jax
import keras
import torch
import torch.nn.functional as F
from keras import layers
from torch import nn

from draw import FLOAT64, Draw, to_jax, to_torch

if FLOAT64:
    keras.config.set_floatx("float64")
IN, HID, OUT, CLIP = 10, 13, 4, 0.2


def weights(seed=601):
    d = Draw(seed)
    return [d.mat(HID, IN), d.vec(HID), d.gain(HID), d.vec(HID), d.mat(OUT, HID), d.vec(OUT)]


def data(cast):
    d = Draw(602)
    return cast(d.data(9, IN)), cast(d.ids(OUT, 9))


def side_torch():
    def fit(x, y):
        net = nn.Sequential(nn.Linear(IN, HID), nn.LayerNorm(HID, eps=1e-6), nn.ReLU(), nn.Linear(HID, OUT))
        for p, w in zip(net.parameters(), to_torch(weights())):
            p.data = w
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        losses = []
        for _ in range(2):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            norm = sum(p.grad.square().sum() for p in net.parameters()).sqrt()
            for p in net.parameters():
                p.grad *= CLIP / max(norm.item(), CLIP)
            optimizer.step()
            losses.append(loss.detach())
        return losses, {n: p.detach() for n, p in net.named_parameters()}

    return fit, data(to_torch)


def fit_with(make_optimizer):
    def fit(x, y):
        model = keras.Sequential([keras.Input((IN,)), layers.Dense(HID, name="fc1"), layers.LayerNormalization(epsilon=1e-6, name="norm"),
                                  layers.ReLU(), layers.Dense(OUT, name="fc2")])
        ws = weights()
        model.set_weights([ws[0].T, *ws[1:4], ws[4].T, ws[5]])
        optimizer = make_optimizer()
        optimizer.build(model.trainable_variables)
        cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def loss_fn(trainable, rest, x, y):
            out, rest = model.stateless_call(trainable, rest, x, training=True)
            return cross_entropy(y, out), rest

        trainable = [v.value for v in model.trainable_variables]
        rest = [v.value for v in model.non_trainable_variables]
        state = [v.value for v in optimizer.variables]
        losses = []
        for _ in range(2):
            (loss, rest), grads = jax.value_and_grad(loss_fn, has_aux=True)(trainable, rest, x, y)
            trainable, state = optimizer.stateless_apply(state, grads, trainable)
            losses.append(loss)
        return losses, {v.path: t for v, t in zip(model.trainable_variables, trainable)}

    return fit, data(to_jax)


def side_keras():
    return fit_with(lambda: keras.optimizers.SGD(0.5, momentum=0.9, global_clipnorm=CLIP))


def side_wrong():
    return fit_with(lambda: keras.optimizers.SGD(learning_rate=0.5, momentum=0.9, clipnorm=CLIP))  # !wrong
