"""Decoupled decay in an optax chain, against torch.optim.AdamW."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch

LR, DECAY = 0.04, 0.25


def side_torch():
    return train_torch(lambda m: torch.optim.AdamW(m.parameters(), LR, weight_decay=DECAY)), batches(to_torch)


def side_wrong():
    tx = optax.chain(optax.scale_by_adam(), optax.scale(-LR), optax.add_decayed_weights(-DECAY))  # !wrong
    return train_optax(tx), (params(), *batches(to_jax))
