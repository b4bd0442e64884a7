"""Training images changed on the devices: a crop, a mirror image, colours, erasing, mixing.

The changes are those of `vit_train.augmentation`, which draws on the host: equal in distribution, and
for the same box and factors the same 8-bit pixels, but for rounding. An image's draws follow from the
seed and its `vit_train.batches.data.Draw` alone, so they depend on no device, host or interruption.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import random

from vit_config import Preprocess, Recipe
from vit_jax.step import Batch
from vit_train.augmentation import erase
from vit_train.augmentation.crop import ATTEMPTS

Box = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""(top, left, height, width) in pixels, integers."""
_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}
_uniform = partial(random.uniform, dtype=jnp.float32)


def make_changes(
    recipe: Recipe, preprocess: Preprocess, size: tuple[int, int]
) -> Callable[[Batch], Batch]:
    """Make the function from a `vit_train.batches.data.SquareBatch` on the devices to a batch as
    `vit_jax.step.make_train_step` takes it, split in the same way; other batches stay as they are.

    Args:
        size: (H, W) of the model's input.
    """
    view = jax.vmap(partial(_view, recipe, preprocess, size))

    def changed(batch: Batch) -> Batch:
        outer = batch["draw"].shape[:-1]  # (B,), or (devices, B / devices) under `jax.pmap`
        flat = {name: x.reshape(-1, *x.shape[len(outer) :]) for name, x in batch.items()}
        images = view(flat["image"], flat["size"], flat["draw"])  # (B, H, W, C)
        if recipe.mix.mixes:
            images = mixed_images(images, **{name: flat[name] for name in _MIXING})
        return {"image": images.reshape(*outer, *images.shape[1:]), "label": batch["label"]}

    @cache
    def compiled(sharding: Any) -> Callable[[Batch], Batch]:
        return jax.jit(changed, out_shardings=sharding)

    return lambda batch: compiled(batch["draw"].sharding)(batch) if "draw" in batch else batch


_MIXING = ("partner", "share", "rest", "box")


def _view(
    recipe: Recipe,
    preprocess: Preprocess,
    size: tuple[int, int],
    square: jax.Array,
    image_size: jax.Array,
    draw: jax.Array,
) -> jax.Array:
    """Make one view of the image on a square, in the host's order, (H, W, C) float32."""
    changes, key = recipe.augment, random.key(recipe.seed)
    for number in draw:
        key = random.fold_in(key, number)
    of_box, of_flip, of_colours, of_erasing = random.split(key, 4)
    box = draw_box(of_box, image_size, changes.crop_area, changes.crop_ratio)
    image = resized(square, box, size, changes.crop_filter)
    if changes.flip:
        image = jnp.where(_uniform(of_flip) < 0.5, image[:, ::-1], image)
    if changes.color_jitter:
        image = color_jitter(of_colours, image, changes.color_jitter)
    mean, std = (jnp.asarray(each, jnp.float32) for each in (preprocess.mean, preprocess.std))
    image = (image / jnp.float32(255) - mean) / std
    return erased(of_erasing, image, changes.erase) if changes.erase else image


def draw_box(
    key: jax.Array, size: jax.Array, area: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """Draw a box as `vit_train.augmentation.crop.torchvision_box` does, in float32.

    Args:
        size: (h, w) of the image, integers.
        area: smallest and largest share of the image's area.
        ratio: smallest and largest width over height.
    """
    of_area, of_ratio, of_top, of_left = random.split(key, 4)
    count = (ATTEMPTS["torchvision"],)
    height, width = size
    areas = _uniform(of_area, count, minval=area[0], maxval=area[1]) * (height * width)
    bounds = math.log(ratio[0]), math.log(ratio[1])
    proportion = jnp.exp(_uniform(of_ratio, count, minval=bounds[0], maxval=bounds[1]))
    h, w = (_whole(jnp.sqrt(each)) for each in (areas / proportion, areas * proportion))  # (10,)
    fits = (h <= height) & (w <= width) & (h > 0) & (w > 0)
    any_fits, first = fits.any(), jnp.argmax(fits)
    most_w = jnp.minimum(width, _whole(height * jnp.float32(ratio[1])))
    most_h = jnp.minimum(height, _whole(width / jnp.float32(ratio[0])))
    h, w = jnp.where(any_fits, h[first], most_h), jnp.where(any_fits, w[first], most_w)
    top, left = (
        jnp.where(any_fits, random.randint(each, (), 0, over + 1), over // 2)
        for each, over in ((of_top, height - h), (of_left, width - w))
    )
    return top, left, h, w


def resized(square: jax.Array, box: Box, size: tuple[int, int], filter: str) -> jax.Array:
    """Cut a box out of a square and resize it, as Pillow 13 does in 8 bits: first the width, unless the
    height loses more than twice as many pixels.

    Args:
        square: (S, S, C) uint8.
        size: (H, W) of the result.

    Returns:
        (H, W, C) float32, whole numbers from 0 to 255.
    """
    top, left, height, width = box
    rows, columns = (
        jnp.pad(matrix, ((0, max(size) - len(matrix)), (0, 0)))  # (max(size), S)
        for matrix in (
            _coefficients(*each, side=square.shape[0], filter=filter)
            for each in ((top, height, size[0]), (left, width, size[1]))
        )
    )
    turned = (height > size[0]) & (height - size[0] > 2 * (width - size[1]))

    def turn(one: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(turned, other, one)

    pixels = turn(square, square.swapaxes(0, 1)).astype(jnp.float32)
    exact = jax.lax.Precision.HIGHEST
    half = jnp.einsum("rsc,ms->rmc", pixels, turn(columns, rows), precision=exact)  # (S, M, C)
    image = jnp.einsum("nr,rmc->nmc", turn(rows, columns), _eight_bits(half), precision=exact)
    image = _eight_bits(image)  # (M, M, C)
    return turn(image, image.swapaxes(0, 1))[: size[0], : size[1]]


def _coefficients(start: jax.Array, length: jax.Array, wanted: int, *, side: int, filter: str) -> Any:
    """Compute the weight of each of `side` pixels in each of the `wanted` ones that `length` pixels from
    `start` on become, (wanted, side); the filter widens where they are fewer, as PIL's does."""
    scale = length.astype(jnp.float32) / wanted
    wider = jnp.maximum(scale, 1)
    centers = (jnp.arange(wanted, dtype=jnp.float32)[:, None] + 0.5) * scale  # (wanted, 1)
    line = (jnp.arange(side) - start).astype(jnp.float32)[None]  # (1, side)
    far = jnp.abs(line + 0.5 - centers) / wider
    if filter == "bilinear":
        weights = jnp.maximum(1 - far, 0)
    else:
        near = (1.5 * far - 2.5) * far * far + 1
        weights = jnp.where(far < 1, near, ((-0.5 * far + 2.5) * far - 4) * far + 2)
    inside = (line >= 0) & (line < length) & (far < _SUPPORT[filter])
    weights = jnp.where(inside, weights, 0)
    return weights / weights.sum(1, keepdims=True)


def color_jitter(key: jax.Array, image: jax.Array, strength: float) -> jax.Array:
    """Change brightness, contrast and saturation in a random order, each by a factor uniform in 1 +-
    `strength`, as `vit_train.augmentation.colors.color_jitter` does.

    Args:
        image: (H, W, 3) float32, whole numbers from 0 to 255.
    """
    of_order, of_factors = random.split(key)
    factors = _uniform(of_factors, (3,), minval=max(0.0, 1 - strength), maxval=1 + strength)
    for index in random.permutation(of_order, 3):
        image = jax.lax.switch(index, (brightness, contrast, saturation), image, factors[index])
    return image


def brightness(image: jax.Array, factor: jax.Array) -> jax.Array:
    """Enhance an image's brightness as PIL's `ImageEnhance.Brightness`."""
    return _blended(jnp.zeros_like(image), image, factor)


def contrast(image: jax.Array, factor: jax.Array) -> jax.Array:
    """Enhance an image's contrast as PIL's `ImageEnhance.Contrast`."""
    return _blended(jnp.full_like(image, jnp.floor(_grey(image).mean() + 0.5)), image, factor)


def saturation(image: jax.Array, factor: jax.Array) -> jax.Array:
    """Enhance an image's saturation as PIL's `ImageEnhance.Color`."""
    return _blended(jnp.broadcast_to(_grey(image), image.shape), image, factor)


def erased(key: jax.Array, image: jax.Array, probability: float) -> jax.Array:
    """Fill a rectangle with noise, as `vit_train.augmentation.erase.erase` does.

    Args:
        image: (H, W, C) float32, normalised.
    """
    of_chance, of_area, of_shape, of_top, of_left, of_noise = random.split(key, 6)
    height, width, count = *image.shape[:2], (10,)
    area = _uniform(of_area, count, minval=erase.AREA[0], maxval=erase.AREA[1]) * (height * width)
    low, high = erase.PROPORTIONS
    proportion = jnp.exp(_uniform(of_shape, count, minval=low, maxval=high))
    h, w = (_whole(jnp.sqrt(each)) for each in (area * proportion, area / proportion))  # (10,)
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    h, w = h[first], w[first]
    top, left = (
        random.randint(each, (), 0, jnp.maximum(over, 0) + 1)
        for each, over in ((of_top, height - h), (of_left, width - w))
    )
    box = _inside((height, width), top, top + h, left, left + w)
    chosen = fits.any() & (_uniform(of_chance) <= probability)
    return jnp.where(chosen & box, random.normal(of_noise, image.shape, jnp.float32), image)


def mixed_images(
    images: jax.Array, partner: jax.Array, share: jax.Array, rest: jax.Array, box: jax.Array
) -> jax.Array:
    """Mix images (B, H, W, C) as `vit_train.augmentation.mixing.mixed_images` does."""
    partners = images[partner]
    inside = jax.vmap(lambda each: _inside(images.shape[1:3], *each))(box)  # (B, H, W, 1)
    pasted = inside.any((1, 2, 3), keepdims=True)
    own, rest = (
        jnp.where(pasted, whole, part.astype(jnp.float32)[:, None, None, None])
        for whole, part in ((1.0, share), (0.0, rest))
    )
    return jnp.where(inside, partners, images * own + partners * rest)


def _inside(size: tuple[int, ...], top: Any, bottom: Any, left: Any, right: Any) -> jax.Array:
    """Return whether each pixel lies in a box, (H, W, 1)."""
    row, column = jnp.arange(size[0])[:, None, None], jnp.arange(size[1])[None, :, None]
    return (row >= top) & (row < bottom) & (column >= left) & (column < right)


def _blended(start: jax.Array, image: jax.Array, factor: jax.Array) -> jax.Array:
    return jnp.trunc(jnp.clip(start + factor * (image - start), 0, 255))


def _grey(image: jax.Array) -> jax.Array:
    """Return PIL's grey levels of an image, (H, W, 1)."""
    red, green, blue = jnp.moveaxis(image.astype(jnp.int32), -1, 0)
    grey = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16
    return grey.astype(jnp.float32)[:, :, None]


def _whole(values: jax.Array) -> jax.Array:
    return jnp.round(values).astype(jnp.int32)


def _eight_bits(values: jax.Array) -> jax.Array:
    return jnp.clip(jnp.floor(values + 0.5), 0, 255)
