"""Conversion of training states to and from the PyTorch trainer's."""

from __future__ import annotations

import torch

from parity.runs.state import Arrays, TrainingState, moments_of
from vit_config import Recipe
from vit_torch.leaves import leaves
from vit_torch.model import ViT
from vit_torch.optim import Ema
from vit_torch.weights import from_numpy, to_arrays, to_numpy


def from_torch(
    step: int, model: ViT, optimizer: torch.optim.Optimizer, ema: Ema | None, recipe: Recipe
) -> TrainingState:
    """Convert the PyTorch trainer's objects after `step` updates to a training state.

    A moment that torch has not created yet is zero.
    """

    def moment(name: str) -> Arrays:
        values = {leaf.name: optimizer.state[leaf.variable].get(name) for leaf in leaves(model)}
        like = {leaf.name: leaf.variable for leaf in leaves(model)}
        return {
            each: to_numpy(torch.zeros_like(like[each]) if value is None else value)
            for each, value in values.items()
        }

    moments = {name: moment(name) for name in moments_of(recipe)}
    averaged = None if ema is None else {name: to_numpy(value) for name, value in ema.items()}
    return TrainingState(step, to_arrays(model), moments, averaged)


@torch.no_grad()
def to_torch(
    state: TrainingState,
    model: ViT,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    recipe: Recipe,
) -> None:
    """Copy a training state into a trainer's model, optimiser and average, in place."""
    for leaf in leaves(model):
        leaf.variable.copy_(from_numpy(state.params[leaf.name]))
        place = leaf.variable.device
        values = {
            name: from_numpy(state.moments[name][leaf.name]).to(place) for name in moments_of(recipe)
        }
        if recipe.optimizer != "sgd":
            values["step"] = torch.tensor(float(state.step))
        optimizer.state[leaf.variable] = values
        if ema is not None and state.ema is not None:
            ema[leaf.name].copy_(from_numpy(state.ema[leaf.name]))
