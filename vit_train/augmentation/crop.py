"""Random crops of an image: the samplers of torchvision and TensorFlow, and a plain random crop.

Each sampler returns a box (top, left, height, width) in pixels.
"""

from __future__ import annotations

import math

import numpy as np

Box = tuple[int, int, int, int]
"""(top, left, height, width) in pixels."""

ATTEMPTS = {"torchvision": 10, "tensorflow": 100}


def torchvision_box(
    size: tuple[int, int],
    area: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Box:
    """Draw the box of torchvision's `RandomResizedCrop` and timm's `RandomResizedCropAndInterpolation`.

    The share of the area and the logarithm of width over height are uniform; after ten attempts that
    do not fit, the box is the largest one at the centre whose proportions are allowed. torchvision
    draws and exponentiates in float32, timm and this function in float64.

    Args:
        size: (h, w) of the image.
        area: smallest and largest share of the image's area.
        ratio: smallest and largest width over height.
        rng: four numbers are drawn for an attempt that fits, two for one that does not.
    """
    height, width = size
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(ATTEMPTS["torchvision"]):
        areas = rng.uniform(*area) * (height * width)
        proportion = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(areas * proportion)), round(math.sqrt(areas / proportion))
        if w <= width and h <= height and w and h:
            top = int(rng.integers(0, height - h, endpoint=True))
            return top, int(rng.integers(0, width - w, endpoint=True)), h, w
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def tensorflow_box(
    size: tuple[int, int],
    area: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Box:
    """Draw the box of TensorFlow's `sample_distorted_bounding_box` for an image without objects.

    Width over height is uniform; then the height is uniform among those whose area is allowed; then
    the place, which never is the last possible one (`Uniform(H - h)` of TensorFlow's kernel leaves
    it out). After a hundred attempts it is the whole image. Everything is in float32, as there.
    """
    for _ in range(ATTEMPTS["tensorflow"]):
        span = np.float32(ratio[1]) - np.float32(ratio[0])
        proportion = np.float32(rng.random(dtype=np.float32)) * span + np.float32(ratio[0])
        if (box := _tensorflow_attempt(size, area, proportion, rng)) is not None:
            return box
    return 0, 0, *size


def _tensorflow_attempt(
    size: tuple[int, int], area: tuple[float, float], proportion: np.float32, rng: np.random.Generator
) -> Box | None:
    """Make one attempt, as ``GenerateRandomCrop`` in
    tensorflow/core/kernels/image/sample_distorted_bounding_box_op.cc."""
    height, width = size
    smallest, largest = (np.float32(share) * np.float32(width) * np.float32(height) for share in area)

    def wide(tall: int) -> int:
        return _round(np.float32(tall) * proportion)

    tall, tallest = (_round(np.sqrt(bound / proportion)) for bound in (smallest, largest))
    if wide(tallest) > width:
        tallest = int((np.float32(width) + np.float32(0.5) - np.float32(1e-7)) / proportion)
        tallest -= wide(tallest) > width
    tallest = min(tallest, height)
    tall = min(tall, tallest)
    if tall < tallest:
        tall += int(rng.integers(tallest - tall + 1))
    if wide(tall) * tall < smallest:
        tall += 1
    if wide(tall) * tall > largest:
        tall -= 1
    w = wide(tall)
    if not smallest <= w * tall <= largest or not 0 < w <= width or not 0 < tall <= height:
        return None
    top = int(rng.integers(height - tall)) if tall < height else 0
    left = int(rng.integers(width - w)) if w < width else 0
    return top, left, tall, w


def random_box(size: tuple[int, int], crop: tuple[int, int], rng: np.random.Generator) -> Box:
    """Draw a box of (H, W) `crop` in an image of (h, w) `size`, as `tf.image.random_crop` does."""
    top = int(rng.integers(0, size[0] - crop[0], endpoint=True))
    return top, int(rng.integers(0, size[1] - crop[1], endpoint=True)), *crop


def _round(value: np.float32) -> int:
    """Round to the nearest whole number, halves to the even one, as C's `lrintf` does."""
    return int(np.rint(value))
