"""Pooling: from tokens to the vector that the head reads."""

import torch
from torch import nn

from vit_config import ViTConfig
from vit_torch.kernels import attend, padding_bias
from vit_torch.mlp import Mlp
from vit_torch.norm import Identity, make_norm
from vit_torch.positions import Places


def mean_of(x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the mean (B, D) of the valid (B, N) of the tokens (B, N, D), or of all if None."""
    if valid is None:
        return x.mean(dim=1)
    dtype = x.dtype
    wide = torch.promote_types(dtype, torch.float32)
    x = torch.where(valid[:, :, None], x.to(wide), 0)
    count = valid.sum(dim=1)[:, None]
    return (x.sum(dim=1) / (count + (count == 0))).to(dtype)


class Pool(nn.Module):
    """Pooling to the class token (with a distillation token, the mean of the two), to the mean of
    the patch tokens - or of all tokens - or to class token and mean side by side."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.kind = cfg.pool
        self.num_class_tokens = 1 + cfg.distill_token
        self.first_pooled = 0 if cfg.pool_prefix else cfg.num_prefix_tokens

    def forward(self, x: torch.Tensor, *, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Pool tokens (B, P + N, D), of which `valid` (B, P + N) count, to (B, D), or to class token and
        mean (B, 2 D)."""
        if self.kind == "class":
            return x[:, : self.num_class_tokens].mean(dim=1)
        first = self.first_pooled
        mean = mean_of(x[:, first:], None if valid is None else valid[:, first:])
        return mean if self.kind == "mean" else torch.cat([x[:, 0], mean], dim=-1)


class AttentionPool(nn.Module):
    """Attention pooling by a learned query, then an MLP (MAP, arXiv 2106.04560)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D = cfg.hidden_size
        self.num_heads = cfg.pool_num_heads or cfg.num_heads
        self.first_pooled = 0 if cfg.pool_prefix else cfg.num_prefix_tokens
        self.latent = nn.Parameter(torch.zeros(1, 1, D))
        self.q = nn.Linear(D, D)
        self.kv = nn.Linear(D, 2 * D)
        self.proj = nn.Linear(D, D)
        self.norm = make_norm(cfg, D)
        self.mlp = Mlp(cfg.pool_mlp)

    def forward(self, x: torch.Tensor, *, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Pool tokens (B, P + N, D), of which `valid` (B, P + N) are attended to, to (B, D)."""
        first = self.first_pooled
        x = x[:, first:]
        bias = None if valid is None else padding_bias(valid[:, first:], x.dtype)  # (B, 1, 1, N)
        B, N, D = x.shape
        latent = self.latent.expand(B, 1, D)
        q = self.q(latent).reshape(B, 1, self.num_heads, -1)  # (B, 1, h, d)
        kv = self.kv(x).reshape(B, N, 2, self.num_heads, -1)  # (B, N, 2, h, d)
        k, v = kv[:, :, 0], kv[:, :, 1]
        y, _ = attend(q, k, v, bias=bias)
        y = self.proj(y.reshape(B, 1, D))
        y = y + self.mlp(self.norm(y))
        return y[:, 0]


class SoftPool(nn.Module):
    """Pooling of squares of patches: their mean times sqrt(D), one of T tokens for a language model."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D, standardise = cfg.hidden_size, cfg.pool_standardise
        self.window, self.gain = cfg.pool_window or 1, D**0.5
        self.std_bias = nn.Parameter(torch.zeros(D)) if standardise else None
        self.std_scale = nn.Parameter(torch.ones(D)) if standardise else None

    def forward(
        self, x: torch.Tensor, *, grid: tuple[int, int] | Places, valid: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Pool tokens (B, N, D) of a grid, or of places of which `valid` (B, N) are no padding, to
        (B, T, D) with T = N / window^2, squares row by row; those of padding alone have no meaning."""
        (B, N, D), k, dtype = x.shape, self.window, x.dtype
        wide = torch.promote_types(dtype, torch.float32)
        x = x.to(wide)
        if isinstance(grid, Places):
            x = x if valid is None else torch.where(valid[:, :, None], x, 0)
            rows, columns = (grid.coordinates // k).unbind(2)  # (B, N)
            number = rows * (grid.grids[:, 1:] // k) + columns
            squares = torch.arange(N // k**2, device=x.device)
            inside = (number[:, :, None] == squares).to(wide)  # (B, N, T)
            y = torch.einsum("bnt,bnd->btd", inside, x) / k**2
        else:
            gh, gw = grid
            y = x.reshape(B, gh // k, k, gw // k, k, D).mean(dim=(2, 4)).reshape(B, -1, D)
        y = y * self.gain
        if self.std_bias is not None and self.std_scale is not None:
            statistics = (self.std_bias, self.std_scale)
            bias, scale = (each.detach().to(wide) for each in statistics)
            y = (y - bias) * scale
        return y.to(dtype)


def make_pool(cfg: ViTConfig) -> nn.Module:
    """Build the schema's pooling; attention pooling is a layer before it and leaves nothing to do."""
    if cfg.pool == "soft":
        return SoftPool(cfg)
    return Identity() if cfg.pool == "map" else Pool(cfg)
