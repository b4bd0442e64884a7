"""The function that each framework traces for an export: from images or token ids to named outputs.

A program that includes preprocessing takes images (B, h, w, C) uint8. Any other takes images resized and
normalised, in its framework's own layout: (B, H, W, C) of JAX, (B, C, H, W) of PyTorch. A text tower's
takes token ids (B, N) int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.exporting.pixels import fit, normalise
from parity.exporting.subject import Subject
from vit_config import TextConfig


def jax_program(subject: Subject) -> Callable[[Any], dict[str, Any]]:
    """Return the function that JAX traces."""
    import jax
    import jax.numpy as jnp

    import vit_jax

    model = subject.model(vit_jax, subject.arrays)
    dtype = jnp.dtype(subject.dtype)

    def program(images: jax.Array) -> dict[str, jax.Array]:
        if subject.input == "tokens":
            return _wide(jnp, subject, model(images))
        if (preprocess := subject.inside) is not None:
            with jax.enable_x64(
                True
            ):  # for PIL's integers; the model after it computes as it always does
                pixels = jnp.moveaxis(images, 3, 1).astype(jnp.float64)  # (B, C, h, w)
                pixels = fit(jnp, pixels, subject.image_size, preprocess).astype(jnp.float32)
            images = jnp.moveaxis(normalise(jnp, pixels, preprocess), 1, 3)  # (B, H, W, C)
        return _wide(jnp, subject, model(images.astype(dtype)))

    return program


def torch_program(subject: Subject) -> Any:
    """Return the module that PyTorch traces."""
    import torch

    import vit_torch

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = subject.model(vit_torch, subject.arrays).requires_grad_(False)

        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            if subject.input == "tokens":
                return _wide(torch, subject, self.model(images.to(torch.int64)))
            if (preprocess := subject.inside) is not None:
                pixels = images.permute(0, 3, 1, 2).to(torch.float64)  # (B, C, h, w)
                pixels = fit(torch, pixels, subject.image_size, preprocess).to(torch.float32)
                images = normalise(torch, pixels, preprocess)  # (B, C, H, W)
            return _wide(torch, subject, self.model(images.to(getattr(torch, subject.dtype))))

    return Program().eval()


def _wide(xp: Any, subject: Subject, output: Any) -> dict[str, Any]:
    """Return a model's outputs by their names, in float32."""
    wide = (each if each is None or isinstance(each, tuple) else _float32(xp, each) for each in output)
    return subject.named(xp, type(output)(*wide))


def _float32(xp: Any, value: Any) -> Any:
    return value.astype(xp.float32) if hasattr(value, "astype") else value.to(xp.float32)


def example(subject: Subject, layout: str) -> tuple[tuple[int | None, ...], str]:
    """Return the shape of a program's input, with None for each dynamic length, and their type.

    Args:
        layout: ``NHWC`` or ``NCHW``, the layout of prepared images.
    """
    if isinstance(subject.config, TextConfig):
        return (subject.batch, subject.length), "int32"
    channels, size = subject.config.in_channels, subject.image_size
    if subject.inside is not None:
        return (subject.batch, None, None, channels), "uint8"
    B = subject.batch
    return ((B, *size, channels) if layout == "NHWC" else (B, channels, *size)), "float32"
