"""SGD with momentum and weight decay: torch.optim against an optax chain."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch


def side_torch():
    return train_torch(lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=0.02)), batches(to_torch)


def side_optax():
    tx = optax.chain(optax.add_decayed_weights(0.02), optax.trace(0.9), optax.scale(-0.1))
    return train_optax(tx), (params(), *batches(to_jax))


def side_wrong():
    tx = optax.chain(optax.add_decayed_weights(0.02), optax.ema(0.9, debias=False), optax.scale(-0.1))  # !wrong
    return train_optax(tx), (params(), *batches(to_jax))
