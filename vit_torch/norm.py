"""Normalisation layers and layer scale."""

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import ViTConfig


class LayerNorm(nn.LayerNorm):
    """LayerNorm that computes, forward and backward, in at least float32.

    torch's own kernel sums the gradients of a bfloat16 weight and bias in bfloat16 (measured: several
    times the error of flax, which computes in float32).
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Normalise the last axis."""
        wide = torch.promote_types(x.dtype, torch.float32)
        weight, bias = (None if each is None else each.to(wide) for each in (self.weight, self.bias))
        return F.layer_norm(x.to(wide), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class RMSNorm(nn.RMSNorm):
    """RMSNorm that computes, forward and backward, in at least float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last axis."""
        wide = torch.promote_types(x.dtype, torch.float32)
        weight = None if self.weight is None else self.weight.to(wide)
        return F.rms_norm(x.to(wide), self.normalized_shape, weight, self.eps).to(x.dtype)


def make_norm(cfg: ViTConfig, size: int, *, affine: bool = True) -> nn.Module:
    """Build the schema's normalisation over the last axis, of length `size`; without gain and bias if
    not `affine`.

    LayerNorm (arXiv 1607.06450) with the two-pass variance E[(x - E[x])^2], or RMSNorm (arXiv
    1910.07467) without bias.
    """
    if cfg.norm == "layernorm":
        return LayerNorm(size, eps=cfg.norm_eps, elementwise_affine=affine)
    return RMSNorm(size, eps=cfg.norm_eps, elementwise_affine=affine)


class LayerScale(nn.Module):
    """A learned gain per channel on a residual branch (arXiv 2103.17239, equation 7)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((cfg.hidden_size,), cfg.layer_scale or 0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale (..., D) by gamma (D,)."""
        return x * self.gamma


class Identity(nn.Module):
    """A placeholder where the schema has no layer; it holds nothing and changes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`."""
        return x


def make_layer_scale(cfg: ViTConfig, branch: str) -> nn.Module:
    """Build the layer scale of a residual branch: ``attention``, ``mlp`` or ``both``; else an
    `Identity`."""
    scaled = cfg.layer_scale is not None and (branch != "mlp" or cfg.layer_scale_on == "both")
    return LayerScale(cfg) if scaled else Identity()
