"""Random changes to a training image: one affine transform about its centre, then a flip."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from vit_config.augmentation import Augment
from vit_config.images.pixels import through_pil


def augment(image: np.ndarray, augment: Augment, rng: np.random.Generator) -> np.ndarray:
    """Rotate, scale and shift an image by random amounts, then perhaps mirror it.

    The content is rotated by up to `rotate` degrees and scaled by 1 +- `scale` about the centre,
    moved by up to `shift` of the height and of the width, all uniform and independent, in one
    bilinear sampling; what comes in from outside is black.

    Args:
        image: (H, W, C) uint8.
        augment: the largest changes; all of them zero returns `image` itself.
        rng: five numbers are drawn whatever the fields are, so that one field more or less
            does not change the others.

    Returns:
        (H, W, C) uint8.
    """
    if not (augment.shift or augment.rotate or augment.scale or augment.flip):
        return image
    angle, scale, down, right = rng.uniform(-1.0, 1.0, 4)
    mirrored = rng.random() < 0.5 and augment.flip
    if augment.rotate or augment.scale or augment.shift:
        height, width = image.shape[:2]
        inverse = _inverse_affine(
            (height, width),
            angle=math.radians(angle * augment.rotate),
            scale=1.0 + scale * augment.scale,
            down=down * augment.shift * height,
            right=right * augment.shift * width,
        )
        image = through_pil(
            image,
            lambda plane: plane.transform(
                (width, height), Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR
            ),
        )
    return image[:, ::-1] if mirrored else image


def _inverse_affine(
    size: tuple[int, int], *, angle: float, scale: float, down: float, right: float
) -> tuple[float, float, float, float, float, float]:
    """PIL's (a, b, c, d, e, f): output (x, y) shows input (a x + b y + c, d x + e y + f).

    Coordinates are continuous with pixel centres at halves, as PIL has it, so the centre of the
    image is (width / 2, height / 2). `angle` in radians, clockwise on the screen; `down` and
    `right` in pixels.
    """
    y, x = size[0] / 2, size[1] / 2
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    return (
        cos,
        sin,
        x - cos * (x + right) - sin * (y + down),
        -sin,
        cos,
        y + sin * (x + right) - cos * (y + down),
    )
