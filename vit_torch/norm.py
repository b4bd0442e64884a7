"""Normalisation layers and layer scale."""

import torch
from torch import nn

from vit_config import ViTConfig


def make_norm(cfg: ViTConfig, size: int) -> nn.Module:
    """The schema's normalisation over the last axis of length `size`.

    LayerNorm (arXiv 1607.06450) with the two-pass variance E[(x - E[x])^2], as torch computes it, or
    RMSNorm (arXiv 1910.07467) without bias.
    """
    if cfg.norm == "layernorm":
        return nn.LayerNorm(size, eps=cfg.norm_eps)
    return nn.RMSNorm(size, eps=cfg.norm_eps)


class LayerScale(nn.Module):
    """A learned gain per channel on a residual branch (arXiv 2103.17239, equation 7)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((cfg.hidden_size,), cfg.layer_scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale (..., D) by gamma (D,)."""
        return x * self.gamma


class Identity(nn.Module):
    """Stands where a schema has no layer; holds nothing and changes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`."""
        return x
