"""The optimiser of a recipe."""

from collections.abc import Iterable

import torch
from torch import nn

from vit_config import Recipe
from vit_config.recipe import is_decayed
from vit_torch.leaves import leaves


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's update rule: torch's own Adam or AdamW, decayed parameters in a group of their own.

    The learning rate is set before every step by `vit_torch.step`.
    """
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for leaf in leaves(model):
        groups[is_decayed(recipe, leaf.name, leaf.variable.ndim)].append(leaf.variable)
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[recipe.optimizer]
    return kind(
        [
            {"params": params, "weight_decay": recipe.weight_decay if decayed else 0.0}
            for decayed, params in groups.items()
            if params
        ],
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.adam_eps,
    )


@torch.no_grad()
def clip_by_global_norm(params: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """Scale gradients by min(1, max_norm / norm); nothing is added to the norm.

    Returns:
        The norm before scaling.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    if max_norm is not None and norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)
    return norm
