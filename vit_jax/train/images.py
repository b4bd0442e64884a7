"""One image at a time, through PIL: decoding, and fitting to the size a model wants."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
from PIL import Image

from vit_config.preprocess import Preprocess

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def decode_image(encoded: bytes, channels: int) -> np.ndarray:
    """Decode PNG or JPEG bytes; a grey or CMYK file in a colour set becomes RGB, and so on.

    Returns:
        (H, W, channels) uint8, read-only.

    Raises:
        OSError, SyntaxError, ValueError: not an image, or a truncated one, in PIL's words.
    """
    with Image.open(io.BytesIO(encoded)) as file:
        image = file if file.mode == _MODES[channels] else file.convert(_MODES[channels])
        pixels = np.asarray(image)  # (H, W) or (H, W, C)
    return pixels.reshape(*pixels.shape[:2], channels)


def fit_image(image: np.ndarray, size: tuple[int, int], preprocess: Preprocess) -> np.ndarray:
    """Resize an image to cover size / crop_fraction and crop the centre.

    Its proportions are kept, unless the crop mode is "squash": then it is resized to just that. The
    rule, rounding included, is that of torchvision and timm (with PIL). An image that already has the
    size is returned as it is.

    Args:
        image: (h, w, C) uint8.
        size: (H, W) in pixels.
        preprocess: its `interpolation`, `crop_fraction` and `crop_mode` apply.

    Returns:
        (H, W, C) uint8.
    """
    if image.shape[:2] == size:
        return image
    height, width = image.shape[:2]
    cover_h, cover_w = (math.floor(side / preprocess.crop_fraction) for side in size)
    if preprocess.crop_mode == "squash":
        new_h, new_w = cover_h, cover_w
    elif cover_h * width >= cover_w * height:
        new_h, new_w = cover_h, cover_h * width // height
    else:
        new_h, new_w = cover_w * height // width, cover_w
    resample = _RESAMPLING[preprocess.interpolation]
    resized = through_pil(image, lambda plane: plane.resize((new_w, new_h), resample))
    top, left = round((new_h - size[0]) / 2), round((new_w - size[1]) / 2)
    return resized[top : top + size[0], left : left + size[1]]


def through_pil(image: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Apply a PIL operation to an image of any number of channels.

    Args:
        image: (H, W, C) uint8.
        change: keeps the mode of the image it is given.

    Returns:
        (H', W', C) uint8.
    """
    if image.shape[2] == 3:
        return np.asarray(change(Image.fromarray(image)))
    # one plane at a time: PIL takes a second or fourth channel for transparency and weighs by it
    planes = [
        np.asarray(change(Image.fromarray(image[:, :, channel]))) for channel in range(image.shape[2])
    ]
    return np.stack(planes, axis=-1)
