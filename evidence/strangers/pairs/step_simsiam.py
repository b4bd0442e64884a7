"""SimSiam with two views: detach in torch, stop_gradient in Equinox."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

IN, D, P = 12, 9, 7


def weights(seed=611):
    d = Draw(seed)
    return {"encoder": (d.mat(D, IN), d.vec(D)), "down": (d.mat(P, D), d.vec(P)), "up": (d.mat(D, P), d.vec(D))}


def views(cast):
    d = Draw(612)
    x = d.data(8, IN)
    return cast(x + d.data(8, IN, scale=0.3)), cast(x + d.data(8, IN, scale=0.3))


def side_torch():
    def step(a, b):
        net = nn.ModuleDict({"encoder": nn.Linear(IN, D), "down": nn.Linear(D, P), "up": nn.Linear(P, D)})
        for n, (w, bias) in to_torch(weights()).items():
            net[n].weight.data, net[n].bias.data = w, bias
        optimizer = torch.optim.SGD(net.parameters(), 0.5, momentum=0.9, weight_decay=1e-2)
        losses = []
        for _ in range(2):
            za, zb = net["encoder"](a), net["encoder"](b)
            pa, pb = (net["up"](F.relu(net["down"](z))) for z in (za, zb))
            loss = -(F.cosine_similarity(pa, zb.detach(), dim=-1).mean() + F.cosine_similarity(pb, za.detach(), dim=-1).mean()) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, {n: p.detach() for n, p in net.named_parameters()}

    return step, views(to_torch)


class Siamese(eqx.Module):
    encoder: eqx.nn.Linear
    down: eqx.nn.Linear
    up: eqx.nn.Linear

    def __init__(self):
        for n, (w, b) in to_jax(weights()).items():
            linear = eqx.nn.Linear(w.shape[1], w.shape[0], key=jax.random.key(0))
            setattr(self, n, eqx.tree_at(lambda m: (m.weight, m.bias), linear, (w, b)))

    def __call__(self, x):
        z = self.encoder(x)
        return z, self.up(jax.nn.relu(self.down(z)))


def cosine(p, z):
    return jnp.sum(p * z, -1) / (jnp.linalg.norm(p, axis=-1) * jnp.linalg.norm(z, axis=-1))


def train(target):
    def loss_fn(model, a, b):
        (za, pa), (zb, pb) = jax.vmap(model)(a), jax.vmap(model)(b)
        return -0.5 * (cosine(pa, target(zb)) + cosine(pb, target(za))).mean()

    def step(a, b):
        model = Siamese()
        tx = optax.chain(optax.add_decayed_weights(1e-2), optax.sgd(0.5, momentum=0.9))
        state, losses = tx.init(eqx.filter(model, eqx.is_inexact_array)), []
        for _ in range(2):
            loss, grads = eqx.filter_value_and_grad(loss_fn)(model, a, b)
            updates, state = tx.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
            model = eqx.apply_updates(model, updates)
            losses.append(loss)
        return losses, {n: {"weight": getattr(model, n).weight, "bias": getattr(model, n).bias} for n in ("encoder", "down", "up")}

    return step, views(to_jax)


def side_eqx():
    return train(jax.lax.stop_gradient)


def side_wrong():
    return train(lambda z: z)  # !wrong
