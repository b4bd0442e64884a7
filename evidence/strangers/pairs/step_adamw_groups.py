"""AdamW with weight decay on matrices only: torch parameter groups, an optax mask."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch


def groups(model):
    no_decay = [p for n, p in model.named_parameters() if p.ndim < 2 or n == "pos_embed"]
    decay = [p for n, p in model.named_parameters() if p.ndim >= 2 and n != "pos_embed"]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.3}, {"params": no_decay, "weight_decay": 0.0}], lr=0.02)


def side_torch():
    return train_torch(groups), batches(to_torch)


def kernels(tree):
    return jax.tree_util.tree_map_with_path(lambda path, p: path[-1].key == "kernel", tree)


def side_optax():
    return train_optax(optax.adamw(0.02, weight_decay=0.3, mask=kernels)), (params(), *batches(to_jax))


def side_wrong():
    matrices = lambda tree: jax.tree.map(lambda p: p.ndim > 1, tree)  # !wrong
    return train_optax(optax.adamw(0.02, weight_decay=0.3, mask=matrices)), (params(), *batches(to_jax))
