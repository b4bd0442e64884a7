"""Random changes to a training image: one affine transform about its centre, then a flip."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from PIL import Image

from vit_config.augmentation import Augment
from vit_config.images.pixels import through_pil

Move = Callable[[Image.Image], Image.Image]
"""Function that changes an image, or one plane of it, and keeps its mode."""


def augment(image: np.ndarray, augment: Augment, rng: np.random.Generator) -> np.ndarray:
    """Rotate, scale and shift an image by random amounts, then perhaps mirror it: see `draw_moves`.

    Args:
        image: (H, W, C) uint8.

    Returns:
        (H, W, C) uint8; `image` itself if nothing changes.
    """
    return apply_moves(image, draw_moves((image.shape[0], image.shape[1]), augment, rng))


def apply_moves(image: np.ndarray, moves: Sequence[Move]) -> np.ndarray:
    """Apply moves one after the other, handing the image to PIL and back once."""
    if not moves:
        return image
    return through_pil(image, lambda plane: reduce(lambda made, move: move(made), moves, plane))


def draw_moves(size: tuple[int, int], augment: Augment, rng: np.random.Generator) -> list[Move]:
    """Draw random amounts of rotation, scaling and shift of an image, and whether it is mirrored.

    The content is rotated by up to `rotate` degrees and scaled by 1 +- `scale` about the centre,
    moved by up to `shift` of the height and of the width, all uniform and independent, in one
    bilinear sampling; pixels from outside are black.

    Args:
        size: (H, W) of the image, in pixels.
        augment: the largest changes.
        rng: five numbers are drawn whatever the fields are, so that one field more or less does not
            change the others; none if all fields are zero.
    """
    if not (augment.shift or augment.rotate or augment.scale or augment.flip):
        return []
    moves: list[Move] = []
    angle, scale, down, right = rng.uniform(-1.0, 1.0, 4)
    mirrored = rng.random() < 0.5 and augment.flip
    if augment.rotate or augment.scale or augment.shift:
        height, width = size
        inverse = _inverse_affine(
            size,
            angle=math.radians(angle * augment.rotate),
            scale=1.0 + scale * augment.scale,
            down=down * augment.shift * height,
            right=right * augment.shift * width,
        )
        how = (Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR)
        moves.append(lambda plane: plane.transform((width, height), *how))
    if mirrored:
        moves.append(lambda plane: plane.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    return moves


def _inverse_affine(
    size: tuple[int, int], *, angle: float, scale: float, down: float, right: float
) -> tuple[float, float, float, float, float, float]:
    """Return PIL's (a, b, c, d, e, f): output (x, y) shows input (a x + b y + c, d x + e y + f).

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
