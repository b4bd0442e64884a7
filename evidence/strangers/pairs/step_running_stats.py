"""A training step with batch norm: the running statistics after it, torch against JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

CH, OUT, LR = 5, 4, 0.3


def weights(seed=631):
    d = Draw(seed)
    return {"conv": d.mat(CH, 3, 2, 2, fan=12), "gamma": d.gain(CH), "beta": d.vec(CH), "mean": d.vec(CH), "var": abs(d.gain(CH)) + d.gain(CH) ** 2,
            "fc": d.mat(OUT, CH), "fc_bias": d.vec(OUT)}


def data(cast):
    d = Draw(632)
    return cast(d.data(3, 3, 6, 4)), cast(d.ids(OUT, 3))


def side_torch():
    def step(x, y):
        w = to_torch(weights())
        conv, norm, fc = nn.Conv2d(3, CH, 2, stride=2, bias=False), nn.BatchNorm2d(CH), nn.Linear(CH, OUT)
        conv.weight.data, norm.weight.data, norm.bias.data, fc.weight.data, fc.bias.data = (
            w[k] for k in ("conv", "gamma", "beta", "fc", "fc_bias"))
        norm.running_mean, norm.running_var = w["mean"], w["var"]
        model = nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), fc).train()
        optimizer = torch.optim.SGD(model.parameters(), LR)
        losses = []
        for _ in range(2):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        tensors = dict(model.named_parameters()) | {"1.running_mean": norm.running_mean, "1.running_var": norm.running_var}
        return losses, {k: v.detach() for k, v in tensors.items()}

    return step, data(to_torch)


def loss_fn(p, stats, x, y, ddof):
    h = jax.lax.conv(x, p["conv"], (2, 2), "VALID")
    mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3))
    n = h.size // CH
    seen = (mean, var * n / (n - 1) if ddof else var)  # !wrong
    stats = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, stats, seen)
    at = lambda v: v[:, None, None]
    h = (h - at(mean)) / jnp.sqrt(at(var) + 1e-5) * at(p["gamma"]) + at(p["beta"])
    z = jax.nn.relu(h).mean((2, 3)) @ p["fc"].T + p["fc_bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)), stats


def train(x, y, ddof=1):
    p = to_jax(weights())
    stats, losses = (p.pop("mean"), p.pop("var")), []
    for _ in range(2):
        (loss, stats), g = jax.value_and_grad(loss_fn, has_aux=True)(p, stats, x, y, ddof)
        p = jax.tree.map(lambda a, b: a - LR * b, p, g)
        losses.append(loss)
    return losses, p | dict(zip(("mean", "var"), stats))


def side_jax():
    return train, data(to_jax)


def side_wrong():
    return (lambda x, y: train(x, y, ddof=0)), data(to_jax)
