"""Linear warm-up over three steps: LambdaLR against a schedule in a lax.scan."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, params, train_torch

PEAK, WARMUP = 0.3, 3


def side_torch():
    def run(xs, ys):
        schedulers = []

        def make(model):
            optimizer = torch.optim.SGD(model.parameters(), lr=PEAK)
            schedulers.append(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP)))
            return optimizer

        return train_torch(make, after=lambda model, optimizer: schedulers[-1].step())(xs, ys)

    return run, batches(to_torch, steps=3)


def scan_training(lr):
    def run(p, xs, ys):
        def step(carry, batch):
            p, count = carry
            loss, grads = jax.value_and_grad(cross_entropy)(p, *batch)
            return (jax.tree.map(lambda a, g: a - lr(count) * g, p, grads), count + 1), loss

        (p, _), losses = jax.lax.scan(step, (p, 0), (xs, ys))
        return losses, p

    return run


def side_scan():
    return scan_training(lambda count: PEAK * jnp.minimum(1.0, (count + 1) / WARMUP)), (params(), *batches(to_jax, steps=3))


def side_wrong():
    schedule = optax.linear_schedule(0.0, PEAK, WARMUP)  # !wrong
    return scan_training(schedule), (params(), *batches(to_jax, steps=3))
