"""Dropout, stochastic depth, patch dropout; active only in training mode."""

import torch
from torch import nn


class Dropout(nn.Module):
    """Dropout: zero each value with probability `rate`, divide the rest by 1 - rate (JMLR 15:1929)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate, self.keep_prob = rate, 1.0 - rate
        self.active = rate > 0.0

    def mask_shape(self, x: torch.Tensor) -> tuple[int, ...]:
        """Return the mask's shape, one independent decision per value."""
        return tuple(x.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop from `x` of any shape; outside training mode return it unchanged."""
        if not self.training or not self.active:
            return x
        keep = torch.rand(self.mask_shape(x), device=x.device) < self.keep_prob
        return torch.where(keep, x / self.keep_prob, torch.zeros_like(x))


class DropPath(Dropout):
    """Stochastic depth (arXiv 1603.09382): drop a whole residual branch, image by image."""

    def mask_shape(self, x: torch.Tensor) -> tuple[int, ...]:
        """Return the mask's shape, one decision per image: (B, 1, 1)."""
        return (x.shape[0],) + (1,) * (x.ndim - 1)


class PatchDropout(Dropout):
    """Patch dropout: each image keeps a random choice of its patch tokens (arXiv 2212.00794)."""

    def __init__(self, rate: float, num_prefix_tokens: int):
        super().__init__(rate)
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map tokens (B, P + N, D) to (B, P + n, D) and the indices (B, n) of the kept patches.

        n is N (1 - rate), rounded down, at least 1; outside training mode all are kept and the indices
        None.
        """
        if not self.training or not self.active:
            return x, None
        prefix, patches = torch.tensor_split(x, [self.num_prefix_tokens], dim=1)
        B, N, D = patches.shape
        scores = torch.rand((B, N), device=x.device)
        kept_patches = torch.argsort(scores, dim=1)[:, : max(1, int(N * self.keep_prob))]  # (B, n)
        patches = torch.gather(patches, 1, kept_patches[:, :, None].expand(-1, -1, D))  # (B, n, D)
        return torch.cat([prefix, patches], dim=1), kept_patches
