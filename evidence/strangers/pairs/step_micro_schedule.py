"""A learning rate that falls per update while gradients accumulate over two micro-batches: accelerate-like torch, optax."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax
import torch
import torch.nn.functional as F

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, named, net, params, train_optax

PEAK, GAMMA = 0.3, 0.5


def side_torch():
    def run(xs, ys):
        model, losses = net(), []
        optimizer = torch.optim.AdamW(model.parameters(), PEAK / 10, weight_decay=0.05)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, GAMMA)
        for i, (x, y) in enumerate(zip(xs, ys)):
            loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
            losses.append(loss.detach() * 2)
            if i % 2:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        return torch.stack(losses), named(model)

    return run, batches(to_torch, steps=4)


def adamw(learning_rate):
    return optax.adamw(learning_rate, weight_decay=0.05)


def side_optax():
    tx = optax.MultiSteps(adamw(lambda count: PEAK / 10 * GAMMA**count), 2).gradient_transformation()
    return train_optax(tx), (params(), *batches(to_jax, steps=4))


def side_wrong():
    def run(p, xs, ys):
        tx = optax.inject_hyperparams(adamw)(learning_rate=PEAK / 10)
        state, total, losses = tx.init(p), jax.tree.map(jnp.zeros_like, p), []
        for i, (x, y) in enumerate(zip(xs, ys)):
            loss, g = jax.value_and_grad(cross_entropy)(p, x, y)
            total = jax.tree.map(lambda a, b: a + b / 2, total, g)
            if i % 2:
                state.hyperparams["learning_rate"] = jnp.asarray(PEAK / 10 * GAMMA**i)  # !wrong
                updates, state = tx.update(total, state, p)
                p = optax.apply_updates(p, updates)
                total = jax.tree.map(jnp.zeros_like, total)
            losses.append(loss)
        return jnp.stack(losses), p

    return run, (params(), *batches(to_jax, steps=4))
