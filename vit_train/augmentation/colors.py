"""Random changes of colour: torchvision's ColorJitter and DeiT III's ThreeAugment."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

JITTERED = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
"""Changes in torchvision's order; its fourth number is hue, which no recipe here changes."""


def color_jitter(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
    """Apply torchvision's `ColorJitter(strength, strength, strength)`: brightness, contrast and
    saturation in a random order, each by a factor uniform in 1 +- `strength`.

    Args:
        image: RGB.
        rng: draws an order of four changes, as torchvision does (hue, the fourth, is not applied),
            then a factor for each of the three.
    """
    order = rng.permutation(4)
    factors = [rng.uniform(max(0.0, 1.0 - strength), 1.0 + strength) for _ in JITTERED]
    for index in order.tolist():
        if index < len(JITTERED):
            image = JITTERED[index](image).enhance(factors[index])
    return image


def three_augment(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Apply DeiT III's ThreeAugment (arXiv 2204.07118, section 3.3): grey, solarised above 128 or
    blurred by a radius of 0.1 to 2, each as likely."""
    match int(rng.integers(3)):
        case 0:
            return Image.merge("RGB", [image.convert("L")] * 3)
        case 1:
            return ImageOps.solarize(image)
        case _:
            return image.filter(ImageFilter.GaussianBlur(radius=rng.uniform(0.1, 2.0)))
