"""Drawing initial values by the recipes of `vit_config.init`."""

from collections.abc import Sequence

import torch
from torch import nn

from vit_config import ViTConfig
from vit_config.init import Draw, initial_draws, rotary_scale
from vit_torch.leaves import Leaf, leaves


def initialise(model: nn.Module, cfg: ViTConfig) -> None:
    """Draw every parameter of a model anew, from torch's default generator."""
    draw_anew(cfg, leaves(model))


@torch.no_grad()
def draw_anew(cfg: ViTConfig, parts: Sequence[Leaf]) -> None:
    """Draw some parameters anew, a bias with its weight; on the meta device nothing is drawn."""
    # torch would trace each draw there, and import its compiler to do so: two seconds
    parts = [leaf for leaf in parts if not leaf.variable.is_meta]
    draws = initial_draws(
        cfg, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    for leaf in parts:
        shares = draws[leaf.name]
        tensors = [leaf.variable] if len(shares) == 1 else leaf.variable.chunk(len(shares))
        for share, tensor in zip(shares, tensors, strict=True):
            sample(share, tensor)


def sample(draw: Draw, tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with samples from a distribution."""
    if draw.kind == "constant":
        return tensor.fill_(draw.a)
    if draw.kind == "uniform":
        return tensor.uniform_(draw.a, draw.b)
    if draw.kind == "normal":
        return tensor.normal_(draw.a, draw.b)
    if draw.kind == "rotary":
        scale = tensor.new_tensor(rotary_scale(draw.a, tensor.shape[-1]))  # (d/4,)
        angle = tensor.new_empty(*tensor.shape[1:-1], 1).uniform_(0.0, 2 * torch.pi)
        cos, sin = scale * torch.cos(angle), scale * torch.sin(angle)  # (depth, h, d/4)
        return tensor.copy_(torch.stack([torch.cat([cos, -sin], -1), torch.cat([sin, cos], -1)]))
    low, high = draw.a - draw.bound, draw.a + draw.bound
    return nn.init.trunc_normal_(tensor, draw.a, draw.b, low, high)
