"""The encoder blocks of two branches, one after the other."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.attention import make_attention
from vit_torch.branches import ParallelBranchesBlock
from vit_torch.drop import DropPath
from vit_torch.mlp import make_mlp
from vit_torch.norm import make_layer_scale, make_norm
from vit_torch.parallel import DifferentialParallelBlock, ParallelBlock
from vit_torch.rope import Rotation


class Block(nn.Module):
    """Pre-norm attention and MLP, each on a residual branch (arXiv 2010.11929, equations 2 and 3)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        self.norm1 = make_norm(cfg, cfg.hidden_size)
        self.attn = make_attention(cfg, index)
        self.ls1 = make_layer_scale(cfg, "attention")
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm2 = make_norm(cfg, cfg.hidden_size)
        self.mlp = make_mlp(cfg)
        self.ls2 = make_layer_scale(cfg, "mlp")
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None.

        Args:
            first: how many tokens to return; None is all. The others are only attended to.
            valid: (B, N) bool, the tokens that are attended to; None is all.
        """
        y, weights = self.attn(self.norm1(x), rotation=rotation, first=first, valid=valid)
        x = x[:, :first] + self.drop_path1(self.ls1(y))
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        return x, weights


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


def make_block(cfg: ViTConfig, index: int) -> nn.Module:
    """Build the schema's block number `index`; all kinds have `Block`'s arguments and results."""
    if cfg.num_parallel > 1:
        return ParallelBranchesBlock(cfg, index)
    if cfg.block == "parallel" and cfg.attention == "differential":
        return DifferentialParallelBlock(cfg, index)
    kinds = {
        "pre_norm": Block,
        "res_post": ResPostBlock,
        "sandwich": SandwichBlock,
        "parallel": ParallelBlock,
    }
    return kinds[cfg.block](cfg, index)
