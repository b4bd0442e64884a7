"""The optimiser of a recipe, and the moving average of the parameters."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from vit_config import Recipe
from vit_config.layer_decay import layer_scales
from vit_config.recipe import decay_mask, decay_strength
from vit_config.schedule import average_decay
from vit_torch.leaves import leaves

Ema = dict[str, torch.Tensor]
"""Moving average of the parameters, by common name."""


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Build the recipe's optimiser, torch's own AdamW, Adam or SGD, or `Lamb`: one parameter group
    for each layer's share of the learning rate, with or without weight decay.

    `vit_torch.step` sets the learning rate before every step, times each group's ``lr_scale``.

    Raises:
        ConfigError: the recipe lists a name that the model does not have.
    """
    params = leaves(model)
    mask = decay_mask(recipe, {leaf.name: leaf.variable.ndim for leaf in params})
    scales = layer_scales(recipe, mask)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for leaf in params:
        groups.setdefault((scales[leaf.name], mask[leaf.name]), []).append(leaf.variable)
    parts = [
        {
            "params": groups[scale, decayed],
            "weight_decay": decay_strength(recipe) if decayed else 0.0,
            **({"lr_scale": scale} if recipe.layer_decay != 1.0 else {}),
        }
        for scale, decayed in sorted(groups, reverse=True)
    ]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            parts, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov
        )
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "lamb": Lamb}[recipe.optimizer]
    betas = (recipe.beta1, recipe.beta2)
    return kind(parts, lr=recipe.learning_rate, betas=betas, eps=recipe.adam_eps)


class Lamb(torch.optim.Optimizer):
    """LAMB (arXiv 1904.00962) as in timm and apex: AdamW's update, scaled to the parameter's norm,
    for parameters that decay, and Adam's for the others. Gradients are clipped elsewhere."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    update = self._direction(param, group)
                    if group["weight_decay"]:
                        update += group["weight_decay"] * param
                        update *= _trust_ratio(param, update)
                    param -= group["lr"] * update

    def _direction(self, param: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """Return Adam's direction, with the state that torch's own Adam keeps."""
        state, (beta1, beta2) = self.state[param], group["betas"]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(param), torch.zeros_like(param)
        state["step"] += 1
        count = state["step"].item()
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.mul_(beta1).add_(param.grad, alpha=1.0 - beta1)
        square.mul_(beta2).addcmul_(param.grad, param.grad, value=1.0 - beta2)
        root = (square / (1.0 - beta2**count)).sqrt_().add_(group["eps"])
        return (mean / (1.0 - beta1**count)).div_(root)


def _trust_ratio(param: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Return the parameter's norm over the update's; 1 where one of them is zero."""
    norms = torch.linalg.vector_norm(param), torch.linalg.vector_norm(update)
    either = (norms[0] == 0.0) | (norms[1] == 0.0)
    return torch.where(either, torch.ones_like(norms[0]), norms[0] / norms[1])


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
    """Return the average before the first update, a copy of the parameters; None without average."""
    if recipe.ema is None:
        return None
    return {leaf.name: leaf.variable.detach().clone() for leaf in leaves(model)}


@torch.no_grad()
def update_ema(recipe: Recipe, ema: Ema | None, model: nn.Module, updates: int) -> None:
    """Update the average in place, after update number `updates`, counted from 1: ema <- decay ema +
    (1 - decay) params. What no training changes stays as it is: it may be infinite."""
    if recipe.ema is None or ema is None:
        return
    decay = float(average_decay(recipe, updates))
    for leaf in leaves(model):
        if leaf.kind != "fixed":
            ema[leaf.name].mul_(decay).add_(leaf.variable, alpha=1.0 - decay)
