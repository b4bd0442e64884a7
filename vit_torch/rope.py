"""Rotary positions: the angles of a grid, and turning queries and keys by them."""

from typing import NamedTuple

import torch
from torch import nn

from vit_config import Rope, ViTConfig
from vit_config.numerics.rope import coordinates, coordinates_of, frequencies, in_order, rotation_table
from vit_torch.positions import Places


class Rotation(NamedTuple):
    """Sine and cosine of the angle of every pair, each (1 or B, N, 1 or h, d / 2)."""

    sin: torch.Tensor
    cos: torch.Tensor


def make_rotation(angles: torch.Tensor, kept_patches: torch.Tensor | None) -> Rotation:
    """Build the rotation by angles (1 or h, N, d / 2), or (B, 1 or h, N, d / 2) where images differ, of
    the kept patches (B, n) alone if not None."""
    if angles.ndim == 4:
        angles = angles.transpose(1, 2)  # (B, N, 1 or h, d/2)
        if kept_patches is not None:
            angles = torch.take_along_dim(angles, kept_patches[:, :, None, None], dim=1)
        return Rotation(torch.sin(angles), torch.cos(angles))
    angles = angles.transpose(0, 1)[None]  # (1, N, 1 or h, d/2)
    if kept_patches is not None:
        angles = angles[0][kept_patches]  # (B, n, 1 or h, d/2)
    return Rotation(torch.sin(angles), torch.cos(angles))


def rotate(x: torch.Tensor, rotation: Rotation, *, pairs: str) -> torch.Tensor:
    """Turn each pair of values of the patch tokens (arXiv 2104.09864, equation 15).

    Args:
        x: (B, P + N, h, d), queries or keys; the P tokens before the patches stay as they are.
        pairs: ``interleaved``, ``half`` or ``half_of_axis``, see `vit_config.rope.Rope`.
    """
    P = x.shape[1] - rotation.sin.shape[1]
    patches = x[:, P:].to(rotation.sin.dtype)
    if pairs == "half":
        a, b = torch.chunk(patches, 2, dim=-1)  # (B, N, h, d/2)
    elif pairs == "half_of_axis":
        apart = patches.unflatten(-1, (2, 2, -1))  # (B, N, h, axes, halves, d/4)
        a, b = apart[..., 0, :].flatten(-2), apart[..., 1, :].flatten(-2)
    else:
        a, b = patches[..., ::2], patches[..., 1::2]
    a, b = a * rotation.cos - b * rotation.sin, b * rotation.cos + a * rotation.sin
    if pairs == "half":
        turned = torch.cat([a, b], dim=-1)
    elif pairs == "half_of_axis":
        apart = [each.unflatten(-1, (2, -1)) for each in (a, b)]
        turned = torch.stack(apart, dim=-2).reshape(patches.shape)
    else:
        turned = torch.stack([a, b], dim=-1).reshape(patches.shape)
    return torch.cat([x[:, :P], turned.to(x.dtype)], dim=1)


def axes_of(rope: Rope, places: Places, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the coordinates of patches along both axes, (B, N) each, the first axis first."""
    coordinates = [
        coordinates_of(rope, axis, places.coordinates[:, :, axis].to(dtype), places.grids[:, axis, None])
        for axis in (0, 1)
    ]
    return in_order(rope, *coordinates)


class RotaryPositions(nn.Module):
    """Rotary positions with the same angles in every block and head."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.rope = cfg.rope or Rope()
        self.head_dim = cfg.head_dim

    def forward(self, grid: tuple[int, int] | Places, x: torch.Tensor) -> torch.Tensor:
        """Compute the angles (1, 1, N, d / 2) of a grid, or (1, B, 1, N, d / 2) of places, in the type
        of `x`, at least float32."""
        wide = torch.promote_types(x.dtype, torch.float32)
        if isinstance(grid, Places):
            bands = torch.tensor(frequencies(self.rope, self.head_dim), dtype=wide, device=x.device)
            angles = [each[..., None] * bands for each in axes_of(self.rope, grid, wide)]  # (B, N, d/4)
            return torch.cat(angles, dim=-1)[None, :, None]
        table = rotation_table(self.rope, grid, self.head_dim)  # (N, d/2)
        return torch.tensor(table, dtype=wide, device=x.device)[None, None]


class MixedRotaryPositions(RotaryPositions):
    """Rotary positions with frequencies learned per block and head, of both axes (arXiv 2403.13298)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__(cfg)
        self.freqs = nn.Parameter(torch.zeros(2, cfg.depth, cfg.num_heads, cfg.head_dim // 2))

    def forward(self, grid: tuple[int, int] | Places, x: torch.Tensor) -> torch.Tensor:
        """Compute the angles (depth, h, N, d / 2) of a grid, or (depth, B, h, N, d / 2) of places, in
        the type of `x`, at least float32."""
        wide = torch.promote_types(x.dtype, torch.float32)
        freqs = self.freqs.to(wide)[:, :, :, None]  # (2, depth, h, 1, d/2)
        if isinstance(grid, Places):
            first, second = (each[:, None, :, None] for each in axes_of(self.rope, grid, wide))
            return first * freqs[0][:, None] + second * freqs[1][:, None]  # (depth, B, h, N, d/2)
        places = torch.tensor(coordinates(self.rope, grid), dtype=wide, device=x.device)  # (N, 2)
        first, second = places[:, 0, None], places[:, 1, None]  # (N, 1)
        return first * freqs[0] + second * freqs[1]


def make_rope(cfg: ViTConfig) -> RotaryPositions | None:
    """Build the schema's rotary positions, if it has any."""
    if cfg.rope is None:
        return None
    kind = MixedRotaryPositions if cfg.rope.kind == "mixed" else RotaryPositions
    return kind(cfg)
