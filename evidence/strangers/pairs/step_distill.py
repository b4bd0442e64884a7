"""A Lightning module that learns from a frozen teacher, against a JAX step."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import lightning as L
import optax
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

IN, HID, K, T, ALPHA = 8, 11, 5, 4.0, 0.6


def weights(seed=741):
    d = Draw(seed)
    return {"teacher": (d.mat(K, IN) * 2, d.vec(K)), "fc1": (d.mat(HID, IN), d.vec(HID)), "fc2": (d.mat(K, HID), d.vec(K))}


def data(cast):
    d = Draw(742)
    return cast(d.data(2, 7, IN)), cast(d.ids(K, 2, 7))


class Distiller(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = nn.Linear(IN, K), nn.Sequential(nn.Linear(IN, HID), nn.Tanh(), nn.Linear(HID, K))
        for layer, pair in zip((self.teacher, self.student[0], self.student[2]), to_torch(weights()).values()):
            layer.weight.data, layer.bias.data = pair
        self.teacher.requires_grad_(False)

    def training_step(self, batch, batch_idx):
        x, y = batch
        z = self.student(x)
        soft = F.kl_div(F.log_softmax(z / T, -1), F.softmax(self.teacher(x) / T, -1), reduction="batchmean")
        return ALPHA * T * T * soft + (1 - ALPHA) * F.cross_entropy(z, y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.student.parameters(), lr=0.1, momentum=0.9)

    def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
        optimizer.zero_grad(set_to_none=True)


def side_lightning():
    def fit(xs, ys):
        module = Distiller().train()
        optimizer, losses = module.configure_optimizers(), []
        for i, batch in enumerate(zip(xs, ys)):
            loss = module.training_step(batch, i)
            module.optimizer_zero_grad(0, i, optimizer)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses), {n: p.detach() for n, p in module.student.named_parameters()}

    return fit, data(to_torch)


def fit(xs, ys, factor=T**2):
    w = to_jax(weights())
    teacher, p = w.pop("teacher"), w
    tx = optax.sgd(0.1, momentum=0.9)

    @jax.value_and_grad
    def loss_fn(p, x, y):
        z = jnp.tanh(x @ p["fc1"][0].T + p["fc1"][1]) @ p["fc2"][0].T + p["fc2"][1]
        target = jax.nn.softmax((x @ teacher[0].T + teacher[1]) / T)
        soft = optax.kl_divergence(jax.nn.log_softmax(z / T), target).mean()
        hard = optax.softmax_cross_entropy_with_integer_labels(z, y).mean()
        return factor * ALPHA * soft + (1 - ALPHA) * hard

    state, losses = tx.init(p), []
    for x, y in zip(xs, ys):
        loss, g = loss_fn(p, x, y)
        updates, state = tx.update(g, state)
        p = optax.apply_updates(p, updates)
        losses.append(loss)
    return jnp.stack(losses), p


def side_jax():
    return fit, data(to_jax)


def side_wrong():
    return (lambda xs, ys: fit(xs, ys, factor=1.0)), data(to_jax)  # !wrong
