"""Adapters (`vit_config.lora`) as further parameters of the layers that they belong to."""

from __future__ import annotations

import torch
from torch import nn

from vit_config.adapters import draw_adapters
from vit_config.lora import Lora
from vit_torch.model import ViT


def add_adapters(model: ViT, lora: Lora | None, seed: int) -> ViT:
    """Give a model's layers their adapters, of its type and on its device; return the model, which
    does not use them."""
    like = next(model.parameters())
    for name, value in draw_adapters(lora, model.cfg, seed).items():
        path, _, own = name.rpartition(".")
        drawn = torch.as_tensor(value).to(like.device, like.dtype)
        model.get_submodule(path).register_parameter(own, nn.Parameter(drawn))
    return model
