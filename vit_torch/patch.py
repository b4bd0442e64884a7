"""Patch embedding: from images to patch tokens."""

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import ViTConfig
from vit_config.images.patches import Patches
from vit_config.images.types import check_image_library, check_image_type
from vit_torch.norm import make_norm


def patchify(images: torch.Tensor, patch_size: tuple[int, int], *, order: str = "hwc") -> torch.Tensor:
    """Cut images into flattened patches, row by row.

    Args:
        images: (B, C, H, W); rows and columns of pixels beyond the last whole patch are ignored.
        order: ``hwc`` flattens each patch in (row, column, channel) order, ``chw`` in (channel, row,
            column) order.

    Returns:
        (B, N, ph * pw * C).
    """
    B, C, H, W = images.shape
    ph, pw = patch_size
    gh, gw = H // ph, W // pw
    x = images[:, :, : gh * ph, : gw * pw].reshape(B, C, gh, ph, gw, pw)
    axes = {"hwc": (0, 2, 4, 3, 5, 1), "chw": (0, 2, 4, 1, 3, 5)}[order]
    return x.permute(axes).reshape(B, gh * gw, ph * pw * C)


class PatchEmbed(nn.Module):
    """Patch embedding by a strided convolution (arXiv 2010.11929, equation 1)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.patch_size, self.centre_pixels = cfg.patch_size, cfg.centre_pixels
        self.add_projection(cfg)
        self.norm = make_norm(cfg, cfg.hidden_size) if cfg.patch_norm else None

    def add_projection(self, cfg: ViTConfig) -> None:
        """Create the projection."""
        self.proj = nn.Conv2d(
            cfg.in_channels,
            cfg.hidden_size,
            kernel_size=cfg.patch_size,
            stride=cfg.patch_size,
            padding=0,
            bias=cfg.patch_bias,
        )

    def project(self, images: torch.Tensor) -> torch.Tensor:
        """Project images (B, C, H, W) to tokens (B, N, D), row by row."""
        x = self.proj(images)  # (B, D, gh, gw)
        return x.flatten(2).transpose(1, 2)  # (B, N, D)

    def project_patches(self, pixels: torch.Tensor) -> torch.Tensor:
        """Project patches (B, N, ph * pw * C), in (row, column, channel) order, to tokens (B, N, D)."""
        kernel = self.proj.weight  # (D, C, ph, pw)
        return F.linear(pixels, kernel.permute(0, 2, 3, 1).flatten(1), self.proj.bias)

    def forward(self, images: torch.Tensor | Patches) -> torch.Tensor:
        """Map images (B, C, H, W), or patches, to patch tokens (B, N, D).

        Raises:
            InputError: images of another framework or another type than the parameters;
                `torch.autocast` casts floating ones.
        """
        padded = isinstance(images, Patches)
        pixels = images.pixels if padded else images
        check_image_library(pixels, "torch")
        types = [str(each.dtype).removeprefix("torch.") for each in (pixels, self.proj.weight)]
        # autocast does not know the meta device, so it is asked only where the types differ
        if types[0] != types[1] and not (
            pixels.is_floating_point() and torch.is_autocast_enabled(pixels.device.type)
        ):
            check_image_type(*types)
        pixels = 2 * (pixels - 0.5) if self.centre_pixels else pixels
        if padded:  # what padding holds, were it not a number, must not reach a sum
            x = self.project_patches(torch.where(images.valid[:, :, None], pixels, 0))
        else:
            x = self.project(pixels)
        return x if self.norm is None else self.norm(x)


class LinearPatchEmbed(PatchEmbed):
    """Patch embedding that flattens each patch and projects it by a linear layer."""

    def add_projection(self, cfg: ViTConfig) -> None:
        """Create the projection and the norm before it."""
        self.order = cfg.patch_embed.removeprefix("linear_")
        self.norm_in = make_norm(cfg, cfg.patch_dim) if cfg.patch_input_norm else None
        self.proj = nn.Linear(cfg.patch_dim, cfg.hidden_size, bias=cfg.patch_bias)

    def project(self, images: torch.Tensor) -> torch.Tensor:
        """Project images (B, C, H, W) to tokens (B, N, D), row by row."""
        x = patchify(images, self.patch_size, order=self.order)  # (B, N, ph * pw * C)
        return self.proj(x if self.norm_in is None else self.norm_in(x))  # (B, N, D)

    def project_patches(self, pixels: torch.Tensor) -> torch.Tensor:
        """Project patches (B, N, ph * pw * C), in (row, column, channel) order, to tokens (B, N, D)."""
        x = pixels
        if self.order == "chw":
            cut = x.reshape(*x.shape[:2], self.patch_size[0] * self.patch_size[1], -1)
            x = cut.transpose(2, 3).reshape(x.shape)
        return self.proj(x if self.norm_in is None else self.norm_in(x))


def make_patch_embed(cfg: ViTConfig) -> PatchEmbed:
    """Build the schema's patch embedding."""
    kind = PatchEmbed if cfg.patch_embed == "conv" else LinearPatchEmbed
    return kind(cfg)
