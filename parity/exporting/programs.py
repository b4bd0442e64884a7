"""The function that each framework traces for an export: from images to named outputs.

A program that includes preprocessing takes images (B, h, w, C) uint8. Any other takes images resized and
normalised, in its framework's own layout: (B, H, W, C) of JAX, (B, C, H, W) of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.exporting.pixels import fit, normalise
from parity.exporting.subject import Subject


def jax_program(subject: Subject) -> Callable[[Any], dict[str, Any]]:
    """Return the function that JAX traces."""
    import jax
    import jax.numpy as jnp

    import vit_jax

    model = vit_jax.from_arrays(subject.config, subject.arrays)
    dtype = jnp.dtype(subject.dtype)

    def program(images: jax.Array) -> dict[str, jax.Array]:
        if (preprocess := subject.inside) is not None:
            with jax.enable_x64(
                True
            ):  # for PIL's integers; the model after it computes as it always does
                pixels = jnp.moveaxis(images, 3, 1).astype(jnp.float64)  # (B, C, h, w)
                pixels = fit(jnp, pixels, subject.image_size, preprocess).astype(jnp.float32)
            images = jnp.moveaxis(normalise(jnp, pixels, preprocess), 1, 3)  # (B, H, W, C)
        found = model(images.astype(dtype))
        assert found.prefix_tokens is not None
        assert found.patch_tokens is not None
        tokens = jnp.concatenate([found.prefix_tokens, found.patch_tokens], axis=1)
        every = {"logits": found.logits, "pooled": found.pooled, "tokens": tokens}
        return {name: every[name].astype(jnp.float32) for name in subject.outputs}

    return program


def torch_program(subject: Subject) -> Any:
    """Return the module that PyTorch traces."""
    import torch

    import vit_torch

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = vit_torch.from_arrays(subject.config, subject.arrays).requires_grad_(False)

        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            if (preprocess := subject.inside) is not None:
                pixels = images.permute(0, 3, 1, 2).to(torch.float64)  # (B, C, h, w)
                pixels = fit(torch, pixels, subject.image_size, preprocess).to(torch.float32)
                images = normalise(torch, pixels, preprocess)  # (B, C, H, W)
            found = self.model(images.to(getattr(torch, subject.dtype)))
            tokens = torch.cat([found.prefix_tokens, found.patch_tokens], dim=1)
            every = {"logits": found.logits, "pooled": found.pooled, "tokens": tokens}
            return {name: every[name].to(torch.float32) for name in subject.outputs}

    return Program().eval()


def example(subject: Subject, layout: str) -> tuple[tuple[int | None, ...], str]:
    """Return the shape of a program's images, with None for each dynamic length, and their type.

    Args:
        layout: ``NHWC`` or ``NCHW``, the layout of prepared images.
    """
    channels, size = subject.config.in_channels, subject.image_size
    if subject.inside is not None:
        return (None, None, None, channels), "uint8"
    return ((None, *size, channels) if layout == "NHWC" else (None, channels, *size)), "float32"
