"""Dropout and stochastic depth; active only in training mode."""

import torch
from torch import nn


class Dropout(nn.Module):
    """Zero each value with probability `rate`, divide the rest by 1 - rate (JMLR 15:1929)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def mask_shape(self, x: torch.Tensor) -> tuple[int, ...]:
        """One independent decision per value."""
        return tuple(x.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop from `x` of any shape; outside training mode return it unchanged."""
        if not self.training or self.rate == 0.0:
            return x
        keep = torch.rand(self.mask_shape(x), device=x.device) < 1.0 - self.rate
        return torch.where(keep, x / (1.0 - self.rate), torch.zeros_like(x))


class DropPath(Dropout):
    """Stochastic depth (arXiv 1603.09382): drop a whole residual branch, image by image."""

    def mask_shape(self, x: torch.Tensor) -> tuple[int, ...]:
        """One decision per image: (B, 1, 1)."""
        return (x.shape[0],) + (1,) * (x.ndim - 1)
