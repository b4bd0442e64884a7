"""Mixup and label smoothing in one loss: timm's torch targets against JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

CLASSES, BATCH, EPS, LAM = 7, 6, 0.2, 0.83


def inputs(cast):
    d = Draw(491)
    return cast(d.mat(CLASSES, 12)), cast(d.data(BATCH, 3, 2, 2)), cast(d.ids(CLASSES, BATCH))


def side_torch():
    def loss(weight, x, y):
        x = LAM * x + (1 - LAM) * x.flip(0)
        off, on = EPS / CLASSES, 1 - EPS + EPS / CLASSES
        hot = lambda y: torch.full((BATCH, CLASSES), off).scatter_(1, y[:, None], on)
        target = LAM * hot(y) + (1 - LAM) * hot(y.flip(0))
        return torch.sum(-target * F.log_softmax(x.flatten(1) @ weight.T, dim=-1), dim=-1).mean()

    return loss, inputs(to_torch)


def mixed(x):
    return LAM * x + (1 - LAM) * x[::-1]


def loss(weight, x, y, spread=CLASSES, lam=LAM):
    logp = jax.nn.log_softmax(mixed(x).reshape(BATCH, -1) @ weight.T)
    hot = jax.nn.one_hot(y, CLASSES, dtype=logp.dtype)
    if spread == CLASSES:
        target = hot * (1 - EPS) + EPS / CLASSES
    else:
        target = hot * (1 - EPS) + (1 - hot) * EPS / spread  # !wrong
    target = lam * target + (1 - lam) * target[::-1]
    return -(target * logp).sum(-1).mean()


def side_jax():
    return loss, inputs(to_jax)


def side_wrong():
    return (lambda w, x, y: loss(w, x, y, spread=CLASSES - 1)), inputs(to_jax)
