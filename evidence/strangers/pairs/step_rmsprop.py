"""RMSprop with momentum and a large epsilon, as in old vision papers: torch against optax."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch


def side_torch():
    return train_torch(lambda m: torch.optim.RMSprop(m.parameters(), 0.01, alpha=0.9, eps=0.01, momentum=0.9)), batches(to_torch)


def side_optax():
    return train_optax(optax.rmsprop(0.01, decay=0.9, eps=0.01, eps_in_sqrt=False, momentum=0.9)), (params(), *batches(to_jax))


def side_wrong():
    return train_optax(optax.rmsprop(0.01, decay=0.9, eps=0.01, momentum=0.9)), (params(), *batches(to_jax))  # !wrong
