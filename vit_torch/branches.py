"""The block with several attentions side by side, then several MLPs."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.attention import make_attention
from vit_torch.drop import DropPath
from vit_torch.mlp import make_mlp
from vit_torch.norm import make_layer_scale, make_norm
from vit_torch.rope import Rotation


class AttentionBranch(nn.Module):
    """One residual branch with attention."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        self.norm = make_norm(cfg, cfg.hidden_size)
        self.attn = make_attention(cfg, index)
        self.ls = make_layer_scale(cfg, "attention")
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute the update to tokens (B, N, D), and the attention weights or None."""
        y, weights = self.attn(self.norm(x), rotation=rotation, first=first, valid=valid)
        return self.drop_path(self.ls(y)), weights


class MlpBranch(nn.Module):
    """One residual branch with an MLP."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        self.norm = make_norm(cfg, cfg.hidden_size)
        self.mlp = make_mlp(cfg)
        self.ls = make_layer_scale(cfg, "mlp")
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the update to tokens (B, N, D)."""
        return self.drop_path(self.ls(self.mlp(self.norm(x))))


class ParallelBranchesBlock(nn.Module):
    """A block that adds several attentions, then several MLPs (arXiv 2203.09795, equation 2)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        branches = range(cfg.num_parallel)
        self.attns = nn.ModuleList([AttentionBranch(cfg, index) for _ in branches])
        self.ffns = nn.ModuleList([MlpBranch(cfg, index) for _ in branches])

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the weights (B, branches * h, N, N) or None."""
        results = [branch(x, rotation=rotation, first=first, valid=valid) for branch in self.attns]
        x = x[:, :first] + sum(y for y, _ in results)
        x = x + sum(branch(x) for branch in self.ffns)
        weights = [each for _, each in results if each is not None]
        return x, torch.cat(weights, dim=1) if weights else None
