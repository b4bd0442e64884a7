"""Adam with a large epsilon: torch.optim.AdamW against optax.scale_by_adam."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch


def side_torch():
    return train_torch(lambda m: torch.optim.AdamW(m.parameters(), 0.05, eps=1e-3, weight_decay=0.1)), batches(to_torch)


def side_optax():
    tx = optax.chain(optax.scale_by_adam(eps=1e-3), optax.add_decayed_weights(0.1), optax.scale_by_learning_rate(0.05))
    return train_optax(tx), (params(), *batches(to_jax))


def side_wrong():
    scale = optax.scale_by_adam(eps=0.0, eps_root=1e-3)  # !wrong
    return train_optax(optax.chain(scale, optax.add_decayed_weights(0.1), optax.scale_by_learning_rate(0.05))), (
        params(), *batches(to_jax))
