"""Lion written as a torch optimizer, against optax and a hand-made transformation."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch

LR, B1, B2, DECAY = 0.01, 0.6, 0.95, 0.3


class Lion(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            m = self.state[p].setdefault("momentum", torch.zeros_like(p))
            p.mul_(1 - LR * DECAY)
            p.add_(torch.sign(m * B1 + p.grad * (1 - B1)), alpha=-LR)
            m.mul_(B2).add_(p.grad, alpha=1 - B2)


def side_torch():
    return train_torch(lambda m: Lion(m.parameters())), batches(to_torch, steps=4)


def side_optax():
    return train_optax(optax.lion(LR, B1, B2, weight_decay=DECAY)), (params(), *batches(to_jax, steps=4))


def scale_by_lion():
    def update(grads, m, params=None):
        m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, m, grads)  # !wrong
        return jax.tree.map(jnp.sign, m), m

    return optax.GradientTransformation(lambda p: jax.tree.map(jnp.zeros_like, p), update)


def side_wrong():
    tx = optax.chain(scale_by_lion(), optax.add_decayed_weights(DECAY), optax.scale_by_learning_rate(LR))
    return train_optax(tx), (params(), *batches(to_jax, steps=4))
