"""A frozen patch embedding: requires_grad in torch, stop_gradient or set_to_zero in JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, params, train_optax, train_torch


def frozen_embed(model):
    model.embed.requires_grad_(False)
    model.pos_embed.requires_grad_(False)
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.03, weight_decay=0.2)


def side_torch():
    return train_torch(frozen_embed), batches(to_torch)


def side_optax():
    labels = lambda tree: {k: jax.tree.map(lambda _: "frozen" if "embed" in k else "live", v) for k, v in tree.items()}
    tx = optax.multi_transform({"live": optax.adamw(0.03, weight_decay=0.2), "frozen": optax.set_to_zero()}, labels)
    return train_optax(tx), (params(), *batches(to_jax))


def side_wrong():
    def loss(p, x, y):
        still = {k: jax.lax.stop_gradient(v) for k, v in p.items() if "embed" in k}
        return cross_entropy(p | still, x, y)

    return train_optax(optax.adamw(0.03, weight_decay=0.2), loss), (params(), *batches(to_jax))  # !wrong
