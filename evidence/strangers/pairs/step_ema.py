"""Averaged weights kept by a Trainer callback, against a JAX loop."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import copy

import jax
import jax.numpy as jnp
import optax
import torch
import torch.nn.functional as F
from transformers import TrainerCallback

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, named, net, params

DECAY, LR = 0.8, 0.3


class EmaCallback(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(DECAY).add_(p, alpha=1 - DECAY)


def side_torch():
    def run(xs, ys):
        model, callback = net(), EmaCallback()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        callback.on_train_begin(None, None, None, model=model)
        losses = []
        for x, y in zip(xs, ys):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            callback.on_step_end(None, None, None, model=model)
            losses.append(loss.detach())
        return torch.stack(losses), named(callback.shadow)

    return run, batches(to_torch)


def average(ema, p):
    return jax.tree.map(lambda e, q: e + (1 - DECAY) * (q - e), ema, p)


def train(average):
    def run(p, xs, ys):
        ema, losses = p, []
        for x, y in zip(xs, ys):
            loss, grads = jax.value_and_grad(cross_entropy)(p, x, y)
            p = jax.tree.map(lambda a, g: a - LR * g, p, grads)
            ema = average(ema, p)
            losses.append(loss)
        return jnp.stack(losses), ema

    return run


def side_jax():
    return train(average), (params(), *batches(to_jax))


def side_wrong():
    swapped = lambda ema, p: optax.incremental_update(p, ema, step_size=DECAY)  # !wrong
    return train(swapped), (params(), *batches(to_jax))
