"""Random erasing: a rectangle of noise in an image."""

from __future__ import annotations

import math

import numpy as np

AREA = (0.02, 1 / 3)
"""Smallest and largest share of the image, as in timm."""
PROPORTIONS = (math.log(0.3), math.log(1 / 0.3))
"""Logarithms of the smallest and the largest height over width."""


def erase(image: np.ndarray, probability: float, rng: np.random.Generator) -> None:
    """Apply timm's `RandomErasing(mode="pixel")` (arXiv 1708.04896) in place: with some probability
    a rectangle becomes normal noise, drawn for each value.

    Args:
        image: (H, W, C) float32, normalised.
        rng: draws one number if nothing is erased; a rectangle is tried ten times.
    """
    if rng.random() > probability:
        return
    height, width, channels = image.shape
    for _ in range(10):
        area = rng.uniform(*AREA) * (height * width)
        proportion = math.exp(rng.uniform(*PROPORTIONS))
        h, w = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
        if w < width and h < height:
            top = int(rng.integers(0, height - h, endpoint=True))
            left = int(rng.integers(0, width - w, endpoint=True))
            noise = rng.standard_normal((channels, h, w), dtype=np.float32)
            image[top : top + h, left : left + w] = noise.transpose(1, 2, 0)
            return
