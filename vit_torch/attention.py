"""Multi-head self-attention."""

import torch
from torch import nn

from vit_config import Rope, ViTConfig
from vit_config.numerics.tables import count_relative_positions, relative_position_index
from vit_torch.bounded import make_linear
from vit_torch.drop import Dropout
from vit_torch.heads import DifferentialHeads, Heads
from vit_torch.kernels import padding_bias
from vit_torch.norm import make_norm
from vit_torch.rope import Rotation, rotate


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


class Attention(Heads, nn.Module):
    """Multi-head attention with one joint projection to q, k, v and an optional output projection."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__()
        D, width = cfg.hidden_size, cfg.attention_width
        self.num_heads, self.head_dim = cfg.num_heads, cfg.head_dim
        self.num_kv_heads = cfg.kv_heads[index]
        self.pairs = (cfg.rope or Rope()).pairs
        self.add_qkv(cfg)
        self.add_qk_norm(cfg)
        self.rel_pos_bias = RelativePositionBias(cfg) if cfg.rel_pos_bias else None
        self.attn_drop = Dropout(cfg.dropout_attention)
        self.norm = make_norm(cfg, width) if cfg.attention_norm else None
        if cfg.attention_out_proj:
            self.proj = make_linear(cfg, width, D, bias=cfg.attention_out_bias)
        else:
            self.proj = None
        self.proj_drop = Dropout(cfg.dropout_attention_out)

    def add_qkv(self, cfg: ViTConfig) -> None:
        """Create the projection to q, k, v."""
        q_width, kv_width = cfg.attention_width, self.num_kv_heads * cfg.head_dim
        joint_bias = cfg.qkv_bias and cfg.k_bias
        sizes = (q_width, kv_width, kv_width)
        self.qkv = make_linear(cfg, cfg.hidden_size, *sizes, bias=joint_bias)
        apart = cfg.qkv_bias and not cfg.k_bias
        self.q_bias = nn.Parameter(torch.zeros(q_width)) if apart else None
        self.v_bias = nn.Parameter(torch.zeros(kv_width)) if apart else None

    def split_heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project (B, N, D) to q (B, N, h, d) and k, v (B, N, kv heads, d)."""
        B, N, _ = x.shape
        h, kv, d = self.num_heads, self.num_kv_heads, self.head_dim
        qkv = self.qkv(x)  # (B, N, (h + 2 kv) d)
        q, k, v = torch.tensor_split(qkv, [h * d, (h + kv) * d], dim=-1)
        if self.q_bias is not None and self.v_bias is not None:
            q, v = q + self.q_bias, v + self.v_bias
        return q.reshape(B, N, h, d), k.reshape(B, N, kv, d), v.reshape(B, N, kv, d)

    def forward(
        self,
        x: torch.Tensor,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map (B, N, D) to the output (B, N, D) and the attention weights (B, h, N, N) or None.

        Args:
            first: how many queries to compute, those of the first tokens; None is all N.
            valid: (B, N) bool, the tokens that are attended to; None is all.
        """
        q, k, v = self.split_heads(x)
        q, k = self.normalise(q, k)
        v = v if self.v_norm is None else self.v_norm(v)
        if rotation is not None:
            q, k = (rotate(each, rotation, pairs=self.pairs) for each in (q, k))
        bias = None if self.rel_pos_bias is None else self.rel_pos_bias()[:, :first]  # (h, first, N)
        q = q[:, :first]
        bias = bias if valid is None else padding_bias(valid, v.dtype)  # (B, 1, 1, N)
        y, weights = self.mix(q, k, v, bias=bias)
        y = y.reshape(*y.shape[:2], -1)  # (B, first, h d)
        y = y if self.norm is None else self.norm(y)
        y = y if self.proj is None else self.proj(y)  # (B, first, D)
        return self.proj_drop(y), weights


class PerHeadAttention(Attention):
    """Attention with small d x d projections: each head sees only its own slice of the width."""

    def add_qkv(self, cfg: ViTConfig) -> None:
        """Create one small projection per head."""
        h, d = cfg.num_heads, cfg.head_dim
        self.qkv_weight = nn.Parameter(torch.zeros(3, h, d, d))  # q, k, v; head; in; out
        self.qkv_bias = nn.Parameter(torch.zeros(3, h, d)) if cfg.qkv_bias else None

    def split_heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project (B, N, D) to q, k, v, each (B, N, h, d)."""
        B, N, _ = x.shape
        x = x.reshape(B, N, self.num_heads, -1)  # (B, N, h, d)
        qkv = torch.einsum("bnhi,shio->sbnho", x, self.qkv_weight)  # (3, B, N, h, d)
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias[:, None, None]
        q, k, v = qkv
        return q, k, v


class DifferentialAttention(DifferentialHeads, Attention):
    """Fused attention with differential heads."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__(cfg, index)
        self.add_lambda(cfg, index)

    def split_heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project (B, N, D) to q, k (B, N, 2 h, d / 2) and v (B, N, h, d)."""
        B, N, _ = x.shape
        q, k, v = super().split_heads(x)
        paired = (B, N, 2 * self.num_heads, -1)
        return q.reshape(paired), k.reshape(paired), v


def make_attention(cfg: ViTConfig, index: int) -> Attention:
    """Build the schema's attention layer for block number `index`."""
    kinds = {"fused": Attention, "per_head": PerHeadAttention, "differential": DifferentialAttention}
    return kinds[cfg.attention](cfg, index)
