"""Patch embedding: from images to patch tokens."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType

from vit_config import InputError, ViTConfig
from vit_config.images.patches import Patches
from vit_config.images.types import check_image_library, check_image_type
from vit_jax.linear import NOT_DRAWN, Linear, add_broadcast
from vit_jax.norm import make_norm


def patchify(images: jax.Array, patch_size: tuple[int, int], *, order: str = "hwc") -> jax.Array:
    """Cut images into flattened patches, row by row.

    Args:
        images: (B, H, W, C); rows and columns of pixels beyond the last whole patch are ignored.
        order: ``hwc`` flattens each patch in (row, column, channel) order, ``chw`` in (channel, row,
            column) order.

    Returns:
        (B, N, ph * pw * C).
    """
    B, H, W, C = images.shape
    ph, pw = patch_size
    gh, gw = H // ph, W // pw
    x = images[:, : gh * ph, : gw * pw].reshape(B, gh, ph, gw, pw, C)
    axes = {"hwc": (0, 1, 3, 2, 4, 5), "chw": (0, 1, 3, 5, 2, 4)}[order]
    return x.transpose(axes).reshape(B, gh * gw, ph * pw * C)


def _check_axes(images: jax.Array, kernel: jax.Array) -> None:
    """Refuse images split over explicit axes of a mesh, which each reshape would have to say onward, and
    parameters on automatic axes under `jax.set_mesh` of a mesh that has the same as explicit ones."""
    context = jax.sharding.get_abstract_mesh()
    of_kernel = jax.typeof(kernel).sharding.mesh
    if AxisType.Auto in of_kernel.axis_types and AxisType.Explicit in context.axis_types:
        raise InputError(
            f"jax.set_mesh was given a mesh with explicit axes {', '.join(context.axis_names)}, and the"
            " parameters lie on automatic ones; make it with jax.make_mesh(..., axis_types="
            f"(jax.sharding.AxisType.Auto,) * {len(context.axis_names)})"
        )
    sharding = jax.typeof(images).sharding
    kinds = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    split = [name for part in sharding.spec for name in (part if isinstance(part, tuple) else (part,))]
    if explicit := [name for name in split if kinds.get(name) == AxisType.Explicit]:
        raise InputError(
            f"images are split over the explicit axes {', '.join(explicit)} of a mesh; make it with"
            f" jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * {len(kinds)})"
        )


class PatchConv(nnx.Conv):
    """A convolution whose strides are its kernel's size: the product of flattened patches and a matrix.

    On a GPU this takes less time than cuDNN's convolution (docs/performance.md).
    """

    def __call__(self, inputs: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map images (B, H, W, C) to (B, gh, gw, D)."""
        B, H, W, _ = inputs.shape
        ph, pw, *_ = self.kernel[...].shape
        return self.of_patches(patchify(inputs, (ph, pw))).reshape(B, H // ph, W // pw, -1)

    def of_patches(self, pixels: jax.Array) -> jax.Array:
        """Map patches (B, N, ph * pw * C), in (row, column, channel) order, to (B, N, D)."""
        kernel = self.kernel[...]  # (ph, pw, C, D)
        x = pixels.reshape(-1, pixels.shape[-1])
        y = jnp.matmul(x, kernel.reshape(-1, kernel.shape[-1]), precision=self.precision)
        y = y if self.bias is None else add_broadcast(y, self.bias[...])
        return y.reshape(*pixels.shape[:-1], -1)


class PatchEmbed(nnx.Module):
    """Patch embedding by a strided convolution (arXiv 2010.11929, equation 1)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.patch_size, self.centre_pixels = cfg.patch_size, cfg.centre_pixels
        self.add_projection(cfg, rngs=rngs)
        self.norm = make_norm(cfg, cfg.hidden_size, rngs=rngs) if cfg.patch_norm else None

    def add_projection(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projection."""
        self.proj = PatchConv(
            cfg.in_channels,
            cfg.hidden_size,
            kernel_size=cfg.patch_size,
            strides=cfg.patch_size,
            padding="VALID",
            use_bias=cfg.patch_bias,
            kernel_init=NOT_DRAWN,
            rngs=rngs,
        )

    def project(self, images: jax.Array) -> jax.Array:
        """Project images (B, H, W, C) to tokens (B, N, D), row by row."""
        x = self.proj(images)  # (B, gh, gw, D)
        return x.reshape(x.shape[0], -1, x.shape[-1])  # (B, N, D)

    def project_patches(self, pixels: jax.Array) -> jax.Array:
        """Project patches (B, N, ph * pw * C), in (row, column, channel) order, to tokens (B, N, D)."""
        return self.proj.of_patches(pixels)

    def __call__(self, images: jax.Array | Patches) -> jax.Array:
        """Map images (B, H, W, C), or patches, to patch tokens (B, N, D).

        Raises:
            InputError: images of another framework or another type than the parameters, or split over
                explicit axes; or parameters on other axes than those of `jax.set_mesh`.
        """
        padded = isinstance(images, Patches)
        pixels = images.pixels if padded else images
        check_image_library(pixels, "jax")
        check_image_type(str(jnp.result_type(pixels)), str(self.proj.kernel[...].dtype))
        _check_axes(pixels, self.proj.kernel[...])
        pixels = 2 * (pixels - 0.5) if self.centre_pixels else pixels
        if padded:  # what padding holds, were it not a number, must not reach a sum
            x = self.project_patches(jnp.where(images.valid[:, :, None], pixels, 0))
        else:
            x = self.project(pixels)
        return x if self.norm is None else self.norm(x)


class LinearPatchEmbed(PatchEmbed):
    """Patch embedding that flattens each patch and projects it by a linear layer."""

    def add_projection(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the projection and the norm before it."""
        self.order = cfg.patch_embed.removeprefix("linear_")
        self.norm_in = make_norm(cfg, cfg.patch_dim, rngs=rngs) if cfg.patch_input_norm else None
        self.proj = Linear(cfg.patch_dim, cfg.hidden_size, use_bias=cfg.patch_bias, rngs=rngs)

    def project(self, images: jax.Array) -> jax.Array:
        """Project images (B, H, W, C) to tokens (B, N, D), row by row."""
        x = patchify(images, self.patch_size, order=self.order)  # (B, N, ph * pw * C)
        return self.proj(x if self.norm_in is None else self.norm_in(x))  # (B, N, D)

    def project_patches(self, pixels: jax.Array) -> jax.Array:
        """Project patches (B, N, ph * pw * C), in (row, column, channel) order, to tokens (B, N, D)."""
        x = pixels
        if self.order == "chw":
            cut = x.reshape(*x.shape[:2], self.patch_size[0] * self.patch_size[1], -1)
            x = cut.swapaxes(2, 3).reshape(x.shape)
        return self.proj(x if self.norm_in is None else self.norm_in(x))


def make_patch_embed(cfg: ViTConfig, *, rngs: nnx.Rngs) -> PatchEmbed:
    """Build the schema's patch embedding."""
    kind = PatchEmbed if cfg.patch_embed == "conv" else LinearPatchEmbed
    return kind(cfg, rngs=rngs)
