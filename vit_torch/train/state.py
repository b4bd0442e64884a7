"""The state of a training run: as the steps change it in place, and as plain tensors by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypedDict

import torch

from vit_config import Recipe
from vit_torch.leaves import leaves
from vit_torch.model import ViT
from vit_torch.optim import Ema, make_optimizer


class TrainState(NamedTuple):
    """Everything that a training step changes, in place."""

    step: int
    """Updates done so far; with the recipe's seed it also fixes dropout."""
    model: ViT
    optimizer: torch.optim.Optimizer
    ema: Ema | None = None
    """The average of the parameters, if the recipe keeps one."""

    @property
    def averaged(self) -> Ema:
        """The parameters to evaluate: the average, or the current ones if no average is kept."""
        if self.ema is not None:
            return self.ema
        return {leaf.name: leaf.variable.detach() for leaf in leaves(self.model)}


class StoredState(TypedDict):
    """A `TrainState` as tensors on the host, or as shapes and types alone (on torch's meta device)."""

    step: int
    model: dict[str, torch.Tensor]
    """The model's state dict."""
    optimizer: dict[str, Any]
    """The optimiser's state dict, in each group also ``param_names``, in the order of ``params``."""
    ema: dict[str, torch.Tensor] | None


def store(state: TrainState) -> StoredState:
    """Copy a state to the host; tensors that lie there already are not copied."""
    names = {leaf.variable: leaf.name for leaf in leaves(state.model)}
    content = state.optimizer.state_dict()
    groups = [
        {**stored, "param_names": [names[variable] for variable in group["params"]]}
        for stored, group in zip(content["param_groups"], state.optimizer.param_groups, strict=True)
    ]
    return {
        "step": state.step,
        "model": _on_host(state.model.state_dict()),
        "optimizer": {
            "state": {index: _on_host(moments) for index, moments in content["state"].items()},
            "param_groups": groups,
        },
        "ema": None if state.ema is None else _on_host(state.ema),
    }


def unstore(stored: StoredState, model: ViT, recipe: Recipe, device: torch.device) -> TrainState:
    """Rebuild a state for training, in memory of its own on a device.

    The optimiser's own numbers come from the recipe; from the stored optimiser it takes the moments.

    Args:
        model: its parameters are replaced by the stored ones.
    """
    place = partial(torch.Tensor.to, device=device, copy=True)
    params = {name: place(value) for name, value in stored["model"].items()}
    model.load_state_dict(params, strict=True, assign=True)
    optimizer = make_optimizer(model, recipe)
    fresh = store(TrainState(0, model, optimizer))["optimizer"]["param_groups"]
    moments = named_moments(stored["optimizer"])
    copies = {
        index: {key: value.clone() for key, value in moments[name].items()}
        for group in fresh
        for index, name in zip(group["params"], group["param_names"], strict=True)
        if name in moments  # torch makes them at a parameter's first update
    }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": copies, "param_groups": groups})  # takes them to the device
    ema = stored["ema"]
    averaged = None if ema is None else {name: place(value) for name, value in ema.items()}
    return TrainState(stored["step"], model, optimizer, averaged)


def named_moments(optimizer: Mapping[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
    """Return a stored optimiser's moments, by the parameter's name and torch's name of the moment."""
    return {
        name: optimizer["state"][index]
        for group in optimizer["param_groups"]
        for index, name in zip(group["params"], group["param_names"], strict=True)
        if index in optimizer["state"]
    }


def _on_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: x.detach() if x.is_meta else x.detach().cpu() for name, x in tensors.items()}
