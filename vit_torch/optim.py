"""The optimiser of a recipe, and the average of the parameters."""

from collections.abc import Iterable

import torch
from torch import nn

from vit_config import Recipe
from vit_config.recipe import decay_mask, decay_strength
from vit_torch.leaves import leaves

Ema = dict[str, torch.Tensor]
"""An average of the parameters by common name."""


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's update rule: torch's own AdamW, Adam or SGD, decayed parameters in a group of their
    own.

    The learning rate is set before every step by `vit_torch.step`.

    Raises:
        ConfigError: the recipe lists a name that the model does not have.
    """
    held = leaves(model)
    mask = decay_mask(recipe, {leaf.name: leaf.variable.ndim for leaf in held})
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for leaf in held:
        groups[mask[leaf.name]].append(leaf.variable)
    parts = [
        {"params": params, "weight_decay": decay_strength(recipe) if decayed else 0.0}
        for decayed, params in groups.items()
        if params
    ]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            parts, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov
        )
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[recipe.optimizer]
    betas = (recipe.beta1, recipe.beta2)
    return kind(parts, lr=recipe.learning_rate, betas=betas, eps=recipe.adam_eps)


@torch.no_grad()
def clip_by_global_norm(
    params: Iterable[nn.Parameter], max_norm: float | None, eps: float = 0.0
) -> torch.Tensor:
    """Scale gradients by min(1, max_norm / (norm + eps)).

    Returns:
        The norm before scaling.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    if max_norm is not None:
        scale = torch.clamp(max_norm / (norm + eps), max=1.0)
        for grad in grads:
            grad.mul_(scale)
    return norm


def init_ema(recipe: Recipe, model: nn.Module) -> Ema | None:
    """The average before the first update: the parameters; None where the recipe keeps none."""
    if recipe.ema is None:
        return None
    return {leaf.name: leaf.variable.detach().clone() for leaf in leaves(model)}


@torch.no_grad()
def update_ema(recipe: Recipe, ema: Ema | None, model: nn.Module) -> None:
    """Update the average in place: ema <- decay ema + (1 - decay) params."""
    if recipe.ema is None or ema is None:
        return
    for leaf in leaves(model):
        ema[leaf.name].mul_(recipe.ema).add_(leaf.variable, alpha=1.0 - recipe.ema)
