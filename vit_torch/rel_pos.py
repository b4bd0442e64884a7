"""A learned bias of the attention logits for each relative position."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_config.numerics.tables import count_relative_positions, relative_position_index


class RelativePositionBias(nn.Module):
    """One number per head and offset between two patches, and three for the class token (BEiT)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.grid = cfg.grid
        self.table = nn.Parameter(torch.zeros(count_relative_positions(cfg.grid), cfg.num_heads))

    def forward(self) -> torch.Tensor:
        """Return the bias of every pair of tokens: (h, 1 + N, 1 + N)."""
        index = torch.tensor(relative_position_index(self.grid), device=self.table.device)
        return self.table[index].permute(2, 0, 1)
