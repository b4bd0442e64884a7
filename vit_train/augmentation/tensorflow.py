"""TensorFlow's ways with pixels, in numpy: resizing and grey, bit for bit where it says so."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def resize_bilinear(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize as `tf.image.resize(method="bilinear", antialias=False)`, cast to uint8 as Big Vision
    does: from two neighbours each way, whatever the scale, with fractions cut off.

    Args:
        image: (h, w, C) uint8.
        size: (H, W).

    Returns:
        (H, W, C) uint8.
    """
    rows, columns = (_neighbours(old, new) for old, new in zip(image.shape[:2], size, strict=True))
    top, bottom = (image[rows[i]][:, :].astype(np.float32) for i in (0, 1))

    def across(line: np.ndarray) -> np.ndarray:
        left, right = line[:, columns[0]], line[:, columns[1]]
        return left + (right - left) * columns[2][:, None]  # (H, W, C)

    above, below = across(top), across(bottom)
    return _cast(above + (below - above) * rows[2][:, None, None])


def _neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pixels before and after each of `new` places among `old`, and the fraction between."""
    scale = np.float32(old) / np.float32(new)
    place = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(place)
    lower = np.maximum(floor.astype(int), 0)
    upper = np.minimum(np.ceil(place).astype(int), old - 1)
    return lower, upper, (place - floor).astype(np.float32)


def resize_area(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize as `tf.image.resize(method="area")`, cast to uint8: each pixel is the mean of its area."""
    scales = [np.float32(old) / np.float32(new) for old, new in zip(image.shape[:2], size, strict=True)]
    pixels = image.astype(np.float32)
    total = np.zeros((*size, image.shape[2]), np.float32)
    for rows, heights in _covered(image.shape[0], size[0], scales[0]):
        line = np.zeros_like(total)
        for columns, widths in _covered(image.shape[1], size[1], scales[1]):
            line += pixels[rows][:, columns] * widths[:, None]
        total += line * heights[:, None, None]
    return _cast(total * (np.float32(1) / (scales[0] * scales[1])))


def _covered(old: int, new: int, scale: np.float32) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the first, second, ... old pixel under each new one, with the covered share of it."""
    start = np.arange(new, dtype=np.float32) * scale
    end = np.arange(1, new + 1, dtype=np.float32) * scale
    first = np.floor(start).astype(int)
    for step in range(int((np.ceil(end) - first).max())):
        pixel = first + step
        share = np.minimum(end, pixel + 1) - np.maximum(start, pixel)
        share = np.where((pixel < start) & (end < pixel + 1), scale, share)
        yield np.minimum(pixel, old - 1), np.clip(share, 0, 1).astype(np.float32)


def resize_shorter(image: np.ndarray, side: int) -> np.ndarray:
    """Resize the shorter side to `side` pixels, by area, proportions kept: Big Vision's
    `resize_small`."""
    factor = np.float32(side) / np.float32(min(image.shape[:2]))
    height, width = (int(np.rint(np.float32(old) * factor)) for old in image.shape[:2])
    return resize_area(image, (height, width))


def grey(image: np.ndarray) -> np.ndarray:
    """Convert (H, W, 3) uint8 to grey (H, W, 1) as `tf.image.rgb_to_grayscale`."""
    shares = np.array([0.2989, 0.5870, 0.1140], np.float32)
    levels = image.astype(np.float32) * np.float32(1.0 / 255)
    summed = (levels * shares).sum(axis=-1, keepdims=True, dtype=np.float32)
    return (summed * np.float32(255.5)).astype(np.uint8)


def _cast(pixels: np.ndarray) -> np.ndarray:
    """Clip to uint8, with fractions cut off."""
    return np.clip(pixels, 0, 255).astype(np.uint8)
