"""From tokens to the vector that the head sees."""

import torch
from torch import nn

from vit_config import ViTConfig


class Pool(nn.Module):
    """The class token, or the mean of the patch tokens."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.kind = cfg.pool
        self.num_prefix_tokens = cfg.num_prefix_tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (B, P + N, D) to (B, D)."""
        if self.kind == "class":
            return x[:, 0]
        return x[:, self.num_prefix_tokens :].mean(dim=1)
