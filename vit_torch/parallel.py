"""Blocks with attention and MLP side by side, behind one norm and one input projection."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.drop import Dropout, DropPath
from vit_torch.heads import DifferentialHeads, Heads
from vit_torch.kernels import padding_bias
from vit_torch.mlp import Activation
from vit_torch.norm import make_layer_scale, make_norm
from vit_torch.rope import Rotation


class ParallelBlock(Heads, nn.Module):
    """A block with attention and MLP on one residual branch (ViT-22B, arXiv 2302.05442, section 2)."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        D, M = cfg.hidden_size, cfg.mlp_dim
        self.num_heads, self.mlp_dim = cfg.num_heads, M
        self.in_norm = make_norm(cfg, D)
        self.in_proj = nn.Linear(D, M + 3 * D, bias=cfg.qkv_bias)
        # where q, k, v have no bias, the MLP's bias is a parameter of its own
        self.mlp_bias = nn.Parameter(torch.zeros(M)) if cfg.mlp_bias and not cfg.qkv_bias else None
        self.add_qk_norm(cfg)
        self.attn_drop = Dropout(cfg.dropout_attention)
        self.mlp_drop = Dropout(cfg.dropout_mlp_inner)
        self.mlp_act = Activation(cfg)
        self.add_out_proj(cfg)
        self.ls = make_layer_scale(cfg, "both")
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def add_out_proj(self, cfg: ViTConfig) -> None:
        """Create the projections back to the width of a token."""
        D, M = cfg.hidden_size, cfg.mlp_dim
        self.attn_out_proj = nn.Linear(D, D, bias=cfg.attention_out_bias)
        self.mlp_out_proj = nn.Linear(M, D, bias=cfg.mlp_bias)

    def out_proj_of(self, attended: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Project attention's (B, N, D) and the MLP's hidden layer (B, N, M) to one (B, N, D)."""
        return self.attn_out_proj(attended) + self.mlp_out_proj(hidden)

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        B, N, D = x.shape
        M, d = self.mlp_dim, D // self.num_heads
        y = self.in_proj(self.in_norm(x))  # (B, N, M + 3 D)
        hidden, q, k, v = torch.tensor_split(y, [M, M + D, M + 2 * D], dim=-1)
        hidden = hidden if self.mlp_bias is None else hidden + self.mlp_bias
        q, k = (each.reshape(B, N, -1, self.qk_dim(d)) for each in (q, k))
        q, k = self.normalise(q, k)
        q, hidden = q[:, :first], hidden[:, :first]
        v = v.reshape(B, N, self.num_heads, d)
        bias = None if valid is None else padding_bias(valid, v.dtype)  # (B, 1, 1, N)
        attended, weights = self.mix(q, k, v, bias=bias)
        hidden = self.mlp_drop(self.mlp_act(hidden))  # (B, first, M)
        y = self.out_proj_of(attended.reshape(B, -1, D), hidden)
        return x[:, :first] + self.drop_path(self.ls(y)), weights


class DifferentialParallelBlock(DifferentialHeads, ParallelBlock):
    """A `ParallelBlock` with differential heads, and one output projection for attention and MLP."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__(cfg, index)
        self.add_lambda(cfg, index)

    def add_out_proj(self, cfg: ViTConfig) -> None:
        """Create the joint projection, attention's columns first."""
        width = cfg.hidden_size + cfg.mlp_dim
        self.out_proj = nn.Linear(width, cfg.hidden_size, bias=cfg.attention_out_bias)

    def out_proj_of(self, attended: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Project attention's (B, N, D) and the MLP's hidden layer (B, N, M) to one (B, N, D)."""
        return self.out_proj(torch.cat([attended, hidden], dim=-1))
