"""RandAugment as in Big Vision, which took it from TensorFlow's models, with its defects.

Three things in it are not what their names promise; recipes were tuned with them, so they are kept:

- every drawn operation is applied: the probability that is drawn for each is never looked at;
- `contrast` blends with the number of pixels over 256 in place of their mean (196 for 224 x 224, and
  255, white, from 65 280 pixels on);
- at magnitude 10 the threshold of `solarize` is 256, which becomes 0 as a pixel's eight bits: every
  pixel is inverted where none should be.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vit_train.augmentation.tensorflow import grey

FILL = 128
"""Value of pixels from outside the image."""
CUTOUT, TRANSLATE = 40, 100
"""Pixels at magnitude 10, whatever the image's size: half a hole's side, and the move."""

Operation = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
"""Function of an image (H, W, 3) uint8, a level of 0 to 1, and random numbers."""


def rand_augment(
    image: np.ndarray, *, layers: int, magnitude: float, rng: np.random.Generator
) -> np.ndarray:
    """Apply `layers` of the sixteen operations, drawn with repetition, all at one magnitude.

    Args:
        image: (H, W, 3) uint8.

    Returns:
        (H, W, 3) uint8.
    """
    for _ in range(layers):
        image = OPERATIONS[int(rng.integers(len(OPERATIONS)))](image, magnitude / 10.0, rng)
    return image


def blend(base: np.ndarray, image: np.ndarray, factor: float) -> np.ndarray:
    """Blend images: `base` at factor 0, `image` at 1, beyond `image` above 1, with fractions cut off."""
    base, image = base.astype(np.float32), image.astype(np.float32)
    return np.clip(base + np.float32(factor) * (image - base), 0, 255).astype(np.uint8)


def contrast_base(image: np.ndarray) -> np.ndarray:
    """Return the base of `contrast`: grey of the number of pixels over 256, not of their mean."""
    height, width = image.shape[:2]
    return np.full_like(image, min(int(height * width / 256.0), 255))


def _signed(value: float, rng: np.random.Generator) -> float:
    return value if rng.random() >= 0.5 else -value


def _projected(image: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Show at (x, y) the input pixel nearest to `rows` (2, 3) times (x, y, 1), else grey.

    This is TensorFlow's ImageProjectiveTransform; halves are rounded away from zero.
    """
    height, width = image.shape[:2]
    rows = rows.astype(np.float32)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    across, down = (row[0] * x + row[1] * y + row[2] for row in rows)
    column, line = (np.trunc(at + np.copysign(np.float32(0.5), at)).astype(int) for at in (across, down))
    inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
    nearest = image[np.clip(line, 0, height - 1), np.clip(column, 0, width - 1)]
    return np.where(inside[..., None], nearest, np.uint8(FILL))


def _auto_contrast(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    low, high = (f(image, axis=(0, 1)).astype(np.float32) for f in (np.min, np.max))
    scale = np.float32(255.0) / np.where(high > low, high - low, np.float32(1))
    changed = np.clip(image.astype(np.float32) * scale + -low * scale, 0, 255).astype(np.uint8)
    return np.where(high > low, changed, image)


def _equalize(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    planes = [_equalized(image[:, :, channel]) for channel in range(image.shape[2])]
    return np.stack(planes, axis=-1)


def _equalized(plane: np.ndarray) -> np.ndarray:
    counts = np.bincount(plane.reshape(-1), minlength=256)
    step = (counts.sum() - counts[counts > 0][-1]) // 255
    if not step:
        return plane
    table = (np.cumsum(counts) + step // 2) // step
    return np.clip(np.concatenate([[0], table[:-1]]), 0, 255).astype(np.uint8)[plane]


def _invert(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return 255 - image


def _rotate(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    angle = np.float32(_signed(level * 30.0, rng) * (math.pi / 180.0))
    cos, sin = np.cos(angle), np.sin(angle)
    bottom, right = (np.float32(side - 1) for side in image.shape[:2])
    x = (right - (cos * right - sin * bottom)) / np.float32(2)
    y = (bottom - (sin * right + cos * bottom)) / np.float32(2)
    return _projected(image, np.array([[cos, -sin, x], [sin, cos, y]]))


def _posterize(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    shift = 8 - int(level * 4)
    return image >> shift << shift


def _solarize(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return np.where(image < int(level * 256) % 256, image, 255 - image)


def _solarize_add(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    lighter = np.clip(image.astype(int) + int(level * 110), 0, 255).astype(np.uint8)
    return np.where(image < 128, lighter, image)


def _enhance(base: Callable[[np.ndarray], np.ndarray]) -> Operation:
    return lambda image, level, rng: blend(base(image), image, level * 1.8 + 0.1)


def _smoothed(image: np.ndarray) -> np.ndarray:
    """Smooth as PIL's SMOOTH does, except at the border."""
    weights = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / np.float32(13.0)
    height, width = image.shape[:2]
    total = np.zeros((height - 2, width - 2, image.shape[2]), np.float32)
    for y in range(3):
        for x in range(3):
            pixels = image[y : y + height - 2, x : x + width - 2].astype(np.float64)
            exact = total + pixels * np.float64(weights[y, x])  # rounded once: fused, as there
            total = exact.astype(np.float32)
    smoothed = image.copy()
    smoothed[1:-1, 1:-1] = np.clip(total, 0, 255).astype(np.uint8)
    return smoothed


def _shear_x(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return _projected(image, np.array([[1, _signed(level * 0.3, rng), 0], [0, 1, 0]]))


def _shear_y(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return _projected(image, np.array([[1, 0, 0], [_signed(level * 0.3, rng), 1, 0]]))


def _move_x(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return _projected(image, np.array([[1, 0, _signed(level * TRANSLATE, rng)], [0, 1, 0]]))


def _move_y(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    return _projected(image, np.array([[1, 0, 0], [0, 1, _signed(level * TRANSLATE, rng)]]))


def _cutout(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    half = int(level * CUTOUT)
    y, x = (int(rng.integers(side)) for side in image.shape[:2])
    changed = image.copy()
    changed[max(y - half, 0) : y + half, max(x - half, 0) : x + half] = FILL
    return changed


OPERATIONS: tuple[Operation, ...] = (
    _auto_contrast,
    _equalize,
    _invert,
    _rotate,
    _posterize,
    _solarize,
    _enhance(lambda image: np.repeat(grey(image), 3, axis=-1)),
    _enhance(contrast_base),
    _enhance(np.zeros_like),
    _enhance(_smoothed),
    _shear_x,
    _shear_y,
    _move_x,
    _move_y,
    _cutout,
    _solarize_add,
)
"""Operations in Big Vision's order: contrast to the full range, equalise, invert, rotate, posterise,
solarise, colour, contrast, brightness, sharpness, shear and move along each axis, a hole, lighten
the dark."""
