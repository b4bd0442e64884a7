"""The block whose norms stand at the end of each branch."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.attention import make_attention
from vit_torch.drop import DropPath
from vit_torch.mlp import make_mlp
from vit_torch.norm import make_norm
from vit_torch.rope import Rotation


class ResPostBlock(nn.Module):
    """Attention and MLP on residual branches that end with a norm (Swin V2, arXiv 2111.09883, 3.2)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        self.attn = make_attention(cfg, index)
        self.norm1 = make_norm(cfg, cfg.hidden_size)
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.mlp = make_mlp(cfg)
        self.norm2 = make_norm(cfg, cfg.hidden_size)
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
        y, weights = self.attn(x, rotation=rotation, first=first, valid=valid)
        x = x[:, :first] + self.drop_path1(self.norm1(y))
        x = x + self.drop_path2(self.norm2(self.mlp(x)))
        return x, weights
