"""Drawing initial values by the recipes of `vit_config.init`."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_config.init import Draw, initial_draws
from vit_torch.leaves import leaves


@torch.no_grad()
def initialise(model: nn.Module, cfg: ViTConfig) -> None:
    """Draw every parameter of a model anew, from torch's default generator."""
    parts = leaves(model)
    draws = initial_draws(
        cfg, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    for leaf in parts:
        sample(draws[leaf.name], leaf.variable)


def sample(draw: Draw, tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with independent values of a distribution."""
    if draw.kind == "constant":
        return tensor.fill_(draw.a)
    if draw.kind == "uniform":
        return tensor.uniform_(draw.a, draw.b)
    if draw.kind == "normal":
        return tensor.normal_(draw.a, draw.b)
    low, high = draw.a - draw.bound, draw.a + draw.bound
    return nn.init.trunc_normal_(tensor, draw.a, draw.b, low, high)
