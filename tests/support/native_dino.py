"""DINOv2 and DINOv3 in torch, with the parameter names of their published checkpoints.

Small, plain and apart from the twins: what the tests of these formats compare with.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, silu


class Attention(nn.Module):
    qkv: Any

    def __init__(self, width: int, heads: int, *, bias: bool, masked: bool):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width)
        if masked:
            ones = torch.ones(width)
            self.qkv.register_buffer("bias_mask", torch.cat([ones, 0 * ones, ones]))

    def forward(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        bias = self.qkv.bias
        if hasattr(self.qkv, "bias_mask"):
            bias = bias * self.qkv.bias_mask
        qkv = nn.functional.linear(x, self.qkv.weight, bias)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=2))
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), dim=3)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the last tokens of x (B, h, T, d) by angles (N, d / 2), value i together with i + d / 2."""
    before, x = x[:, :, : -len(angles)], x[:, :, -len(angles) :]
    a, b = x.chunk(2, dim=3)
    turned = [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()]
    return torch.cat([before, torch.cat(turned, dim=3)], dim=2)


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(gelu(self.fc1(x)))


class Packed(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.w12, self.w3 = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.w12(x).chunk(2, dim=2)
        return self.w3(silu(gate) * value)


class Split(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(width, hidden),
            nn.Linear(width, hidden),
            nn.Linear(hidden, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w3(silu(self.w1(x)) * self.w2(x))


class Scale(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))


class Block(nn.Module):
    def __init__(self, width: int, eps: float, attention: nn.Module, mlp: nn.Module):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attn, self.mlp = attention, mlp
        self.ls1, self.ls2 = Scale(width), Scale(width)

    def forward(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        x = x + self.ls1.gamma * self.attn(self.norm1(x), angles)
        return x + self.ls2.gamma * self.mlp(self.norm2(x))


class Dino(nn.Module):
    """Either of the two; images (B, 3, H, W) to the normalised class token (B, D)."""

    patch_embed: Any
    rope_embed: Any
    blocks: Any

    def __init__(
        self,
        version: int,
        *,
        width: int = 40,
        heads: int = 5,
        depth: int = 3,
        hidden: int = 24,
        image: int = 12,
        patch: int = 3,
        registers: int = 0,
        gated: bool = False,
        qkv_bias: bool = True,
        masked: bool = True,
    ):
        super().__init__()
        eps = 1e-6 if version == 2 else 1e-5
        self.registers_name = "register_tokens" if version == 2 else "storage_tokens"
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, width, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.mask_token = nn.Parameter(torch.zeros(1, width))
        if registers:
            setattr(self, self.registers_name, nn.Parameter(torch.zeros(1, registers, width)))
        self.pos_embed = self.rope_embed = None
        if version == 2:
            self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, width))
        else:
            self.rope_embed = nn.Module()
            quarter = width // heads // 4
            periods = 100.0 ** (torch.arange(quarter, dtype=torch.float64) / quarter)
            self.rope_embed.register_buffer("periods", periods)
        mlp = (Packed if version == 2 else Split) if gated else Mlp
        masked = masked and version == 3 and qkv_bias
        self.blocks = nn.ModuleList(
            Block(width, eps, Attention(width, heads, bias=qkv_bias, masked=masked), mlp(width, hidden))
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=eps)

    def angles(self, rows: int, columns: int) -> torch.Tensor | None:
        """Of each patch, those of its row, then those of its column, (N, d / 2)."""
        if self.rope_embed is None:
            return None
        y, x = (2 * (torch.arange(n, dtype=torch.float64) + 0.5) / n - 1 for n in (rows, columns))
        y, x = torch.meshgrid(y, x, indexing="ij")
        turns = 2 * math.pi / self.rope_embed.periods
        return torch.cat([y.reshape(-1, 1) * turns, x.reshape(-1, 1) * turns], dim=1)

    def tokens(self, images: torch.Tensor) -> torch.Tensor:
        """Normalised tokens (B, 1 + R + N, D)."""
        x = self.patch_embed.proj(images)
        angles = self.angles(*x.shape[2:])
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        if (registers := getattr(self, self.registers_name, None)) is not None:
            x = torch.cat([x[:, :1], registers.expand(len(x), -1, -1), x[:, 1:]], dim=1)
        for block in self.blocks:
            x = block(x, angles)
        return self.norm(x)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.tokens(images)[:, 0]


class Classifier(nn.Module):
    """A linear layer on the class token beside the mean of the patches."""

    def __init__(self, backbone: Dino, registers: int, classes: int = 7):
        super().__init__()
        self.backbone, self.registers = backbone, registers
        self.linear_head = nn.Linear(2 * backbone.cls_token.shape[2], classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.backbone.tokens(images)
        return self.linear_head(torch.cat([x[:, 0], x[:, 1 + self.registers :].mean(dim=1)], dim=1))
