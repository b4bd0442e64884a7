"""The block whose branches have a norm at both ends."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.attention import make_attention
from vit_torch.drop import DropPath
from vit_torch.mlp import make_mlp
from vit_torch.norm import make_norm
from vit_torch.rope import Rotation


class SandwichBlock(nn.Module):
    """Attention and MLP on residual branches that begin and end with a norm (arXiv 2105.13290, 2.4)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        self.norm1 = make_norm(cfg, cfg.hidden_size)
        self.attn = make_attention(cfg, index)
        self.norm2 = make_norm(cfg, cfg.hidden_size)
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm3 = make_norm(cfg, cfg.hidden_size)
        self.mlp = make_mlp(cfg)
        self.norm4 = make_norm(cfg, cfg.hidden_size)
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        y, weights = self.attn(self.norm1(x), rotation=rotation, first=first, valid=valid)
        x = x[:, :first] + self.drop_path1(self.norm2(y))
        x = x + self.drop_path2(self.norm4(self.mlp(self.norm3(x))))
        return x, weights
