"""RandAugment (arXiv 1909.13719) as timm has it: `rand-m9-mstd0.5-inc1`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Colour = tuple[int, ...]
PROBABILITY = 0.5
"""Probability that a drawn operation is applied."""


class Canvas(NamedTuple):
    """The fill of empty pixels and the resampling of operations that move pixels."""

    fill: Colour
    resample: Image.Resampling


Operation = Callable[[Image.Image, float, Canvas, np.random.Generator], Image.Image]
"""Function of an image, a level of 0 to 1, the canvas, and random numbers for a sign."""


def rand_augment(
    image: Image.Image,
    *,
    layers: int,
    magnitude: float,
    deviation: float,
    canvas: Canvas,
    rng: np.random.Generator,
) -> Image.Image:
    """Apply `layers` of the fifteen operations, drawn with repetition.

    Each is applied with probability one half, at a magnitude that is normal about `magnitude`, cut to 0
    to 10. "Increasing" (`inc1`): a higher magnitude changes the image more, in every operation.
    """
    for index in rng.integers(0, len(OPERATIONS), layers).tolist():
        if rng.random() > PROBABILITY:
            continue
        drawn = rng.normal(magnitude, deviation) if deviation > 0 else magnitude
        image = OPERATIONS[index](image, max(0.0, min(drawn, 10.0)) / 10.0, canvas, rng)
    return image


def _signed(value: float, rng: np.random.Generator) -> float:
    return -value if rng.random() > 0.5 else value


def _moved(image: Image.Image, canvas: Canvas, *matrix: float) -> Image.Image:
    """Transform so that output (x, y) shows input (a x + b y + c, d x + e y + f)."""
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, canvas.resample, fillcolor=canvas.fill
    )


def _shear_x(image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator) -> Image.Image:
    return _moved(image, canvas, 1, _signed(level * 0.3, rng), 0, 0, 1, 0)


def _shear_y(image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator) -> Image.Image:
    return _moved(image, canvas, 1, 0, 0, _signed(level * 0.3, rng), 1, 0)


def _move_x(image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator) -> Image.Image:
    return _moved(image, canvas, 1, 0, _signed(level * 0.45, rng) * image.width, 0, 1, 0)


def _move_y(image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator) -> Image.Image:
    return _moved(image, canvas, 1, 0, 0, 0, 1, _signed(level * 0.45, rng) * image.height)


def _rotate(image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator) -> Image.Image:
    return image.rotate(_signed(level * 30.0, rng), canvas.resample, fillcolor=canvas.fill)


def _enhance(kind: Callable[[Image.Image], Any]) -> Operation:
    def enhance(
        image: Image.Image, level: float, canvas: Canvas, rng: np.random.Generator
    ) -> Image.Image:
        return kind(image).enhance(max(0.1, 1.0 + _signed(level * 0.9, rng)))

    return enhance


def _plain(change: Callable[[Image.Image, float], Image.Image]) -> Operation:
    return lambda image, level, canvas, rng: change(image, level)


def _posterize(image: Image.Image, level: float) -> Image.Image:
    """Keep the upper bits of each value: four down to none, which is black, at magnitude 10. Newer
    Pillows refuse to keep none, so that timm's RandAugment stops there now and then."""
    dropped = 4 + int(level * 4)
    return image.point([value >> dropped << dropped for value in range(256)] * len(image.getbands()))


def _brighten_dark(image: Image.Image, level: float) -> Image.Image:
    """Apply solarise-add: pixels below 128 become lighter."""
    added = min(128, int(level * 110))
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


OPERATIONS: tuple[Operation, ...] = (
    _plain(lambda image, level: ImageOps.autocontrast(image)),
    _plain(lambda image, level: ImageOps.equalize(image)),
    _plain(lambda image, level: ImageOps.invert(image)),
    _rotate,
    _plain(_posterize),
    _plain(lambda image, level: ImageOps.solarize(image, 256 - min(256, int(level * 256)))),
    _plain(_brighten_dark),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
    _shear_x,
    _shear_y,
    _move_x,
    _move_y,
)
"""Operations in timm's order: contrast to the full range, equalise, invert, rotate, posterise,
solarise, lighten the dark, colour, contrast, brightness, sharpness, shear and move along each axis."""
