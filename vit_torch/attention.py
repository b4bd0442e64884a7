"""Multi-head self-attention: one reference path in any precision, and a named fast kernel."""

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import InputError, ViTConfig
from vit_torch.drop import Dropout

KERNELS = ("reference", "sdpa")
"""``reference`` is plain einsum and softmax; ``sdpa`` is torch's scaled_dot_product_attention, which
chooses the fastest implementation of the device."""


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, kernel: str, drop: Dropout
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """softmax(q k^T / sqrt(d)) v (arXiv 1706.03762, equation 1).

    Args:
        q, k, v: (B, N, h, d).
        kernel: one of `KERNELS`.

    Returns:
        The heads' outputs (B, N, h, d), and the weights (B, h, N, N) before dropout - None from a
        fast kernel, which never forms them.

    Raises:
        InputError: an unknown kernel, or a fast one while attention weights are dropped.
    """
    scale = q.shape[-1] ** -0.5
    if kernel == "reference":
        logits = torch.einsum("bnhd,bmhd->bhnm", q * scale, k)  # (B, h, N, N)
        wide = torch.promote_types(logits.dtype, torch.float32)  # never a softmax in half precision
        weights = torch.softmax(logits.to(wide), dim=-1).to(v.dtype)
        return torch.einsum("bhnm,bmhd->bnhd", drop(weights), v), weights
    if kernel != "sdpa":
        raise InputError(f"kernel = {kernel!r}; the attention kernels here are {', '.join(KERNELS)}")
    if drop.training and drop.rate:
        raise InputError(
            f"kernel = {kernel!r} cannot drop attention weights, but dropout_attention = {drop.rate};"
            ' use kernel = "reference" or dropout_attention = 0'
        )
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, h, N, d)
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2), None


class Attention(nn.Module):
    """One q, k, v projection of the whole width, heads, an optional output projection."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D = cfg.hidden_size
        self.num_heads = cfg.num_heads
        self.add_qkv(cfg)
        self.attn_drop = Dropout(cfg.dropout_attention)
        if cfg.attention_out_proj:
            self.proj = nn.Linear(D, D, bias=cfg.attention_out_bias)
        else:
            self.proj = None
        self.proj_drop = Dropout(cfg.dropout_attention_out)

    def add_qkv(self, cfg: ViTConfig) -> None:
        """Create the projection to q, k, v."""
        self.qkv = nn.Linear(cfg.hidden_size, 3 * cfg.hidden_size, bias=cfg.qkv_bias)

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Project (B, N, D) to q, k, v: (3, B, N, h, d)."""
        B, N, _ = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, -1)  # (B, N, 3, h, d)
        return torch.moveaxis(qkv, 2, 0)  # (3, B, N, h, d)

    def forward(
        self, x: torch.Tensor, *, kernel: str = "reference"
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(B, N, D) to the output (B, N, D) and the attention weights (B, h, N, N) or None."""
        q, k, v = self.split_heads(x)
        y, weights = attend(q, k, v, kernel=kernel, drop=self.attn_drop)
        y = y.reshape(x.shape)  # (B, N, D)
        if self.proj is not None:
            y = self.proj(y)
        return self.proj_drop(y), weights


class PerHeadAttention(Attention):
    """Heads first: each head's d x d projections see only its own slice of the width."""

    def add_qkv(self, cfg: ViTConfig) -> None:
        """Create one small projection per head."""
        h, d = cfg.num_heads, cfg.head_dim
        self.qkv_weight = nn.Parameter(torch.zeros(3, h, d, d))  # q, k, v; head; in; out
        self.qkv_bias = nn.Parameter(torch.zeros(3, h, d)) if cfg.qkv_bias else None

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Project (B, N, D) to q, k, v: (3, B, N, h, d)."""
        B, N, _ = x.shape
        x = x.reshape(B, N, self.num_heads, -1)  # (B, N, h, d)
        qkv = torch.einsum("bnhi,shio->sbnho", x, self.qkv_weight)  # (3, B, N, h, d)
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias[:, None, None]
        return qkv


def make_attention(cfg: ViTConfig) -> Attention:
    """The schema's attention layer."""
    kind = {"fused": Attention, "per_head": PerHeadAttention}[cfg.attention]
    return kind(cfg)
