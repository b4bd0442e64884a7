"""The encoder block."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.attention import make_attention
from vit_torch.drop import DropPath
from vit_torch.mlp import Mlp
from vit_torch.norm import Identity, LayerScale, make_norm


class Block(nn.Module):
    """Pre-norm attention and MLP, each on a residual branch (arXiv 2010.11929, equations 2 and 3)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        D, scaled = cfg.hidden_size, cfg.layer_scale is not None
        self.norm1 = make_norm(cfg, D)
        self.attn = make_attention(cfg)
        self.ls1 = LayerScale(cfg) if scaled else Identity()
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm2 = make_norm(cfg, D)
        self.mlp = Mlp(cfg)
        self.ls2 = LayerScale(cfg) if scaled else Identity()
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def forward(
        self, x: torch.Tensor, *, kernel: str = "reference"
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        y, weights = self.attn(self.norm1(x), kernel=kernel)
        x = x + self.drop_path1(self.ls1(y))
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        return x, weights
