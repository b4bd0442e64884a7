"""Adagrad as each library starts it."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch


def side_torch():
    return train_torch(lambda m: torch.optim.Adagrad(m.parameters(), 0.05, eps=0.0)), batches(to_torch)


def side_optax():
    tx = optax.chain(optax.scale_by_rss(initial_accumulator_value=0.0, eps=0.0), optax.scale(-0.05))
    return train_optax(tx), (params(), *batches(to_jax))


def side_wrong():
    return train_optax(optax.adagrad(0.05, eps=1e-7)), (params(), *batches(to_jax))  # !wrong
