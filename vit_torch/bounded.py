"""Linear layers whose inputs and outputs are clamped."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import ViTConfig


def clamp(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Clamp values to [low, high]; a value at a bound keeps its gradient."""
    x = torch.where(x < low, low, x)
    return torch.where(x > high, high, x)


class BoundedLinear(nn.Linear):
    """A linear layer whose parts - the rows of its weight, divided - each clamp input and output.

    `bounds` has the lowest and highest input and the lowest and highest output, part by part; no
    training changes them.
    """

    def __init__(self, inputs: int, sizes: Sequence[int], *, bias: bool):
        super().__init__(inputs, sum(sizes), bias=bias)
        self.sizes = tuple(sizes)
        self.bounds = nn.Parameter(torch.zeros(4 * len(sizes)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map (..., inputs) to (..., outputs)."""
        bounds = self.bounds.detach().reshape(-1, 4)  # (parts, 4)
        weights = self.weight.split(self.sizes)
        biases = [None] * len(weights) if self.bias is None else self.bias.split(self.sizes)
        parts = []
        for weight, bias, (low_in, high_in, low_out, high_out) in zip(
            weights, biases, bounds, strict=True
        ):
            y = F.linear(clamp(x, low_in, high_in), weight, bias)
            parts.append(clamp(y, low_out, high_out))
        return torch.cat(parts, dim=-1)


def make_linear(cfg: ViTConfig, inputs: int, *sizes: int, bias: bool) -> nn.Linear:
    """Build a linear layer of a block, whose outputs are joined parts of these sizes."""
    if cfg.linear_bounds:
        return BoundedLinear(inputs, sizes, bias=bias)
    return nn.Linear(inputs, sum(sizes), bias=bias)
