"""Preprocessing of pixels: the facts that must travel with the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vit_config.base import FloatTuple, NameTuple, PositiveInt, Schema, Size
from vit_config.errors import ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
PixelType = Literal["uint8", "uint16", "float32"]
Exif = Literal["ignore", "apply"]
WHITE = {"uint8": 255, "uint16": 65535, "float32": 1}
"""The value of a pixel that counts as 1."""


class Preprocess(Schema, frozen=True):
    """What is done to an image before the model sees it; part of every weights file."""

    later: ClassVar = ("pixel_type", "several_labels", "exif")

    mean: FloatTuple = (0.5, 0.5, 0.5)
    """Per-channel mean, on pixels scaled to [0, 1] (see `pixel_type`)."""
    std: FloatTuple = (0.5, 0.5, 0.5)
    """Per-channel standard deviation, on pixels scaled to [0, 1]."""
    image_size: Size | None = None
    """Height and width in pixels that images are brought to; None means the model's image_size. Another
    size is for a model with dynamic_image_size."""
    interpolation: Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"] = "bicubic"
    """How an image of another size is resized: one of PIL's filters, all of which average over as many
    pixels as become one, but for nearest."""
    crop_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the resized image that the centre crop keeps."""
    crop_mode: Literal["center", "squash", "border"] = "center"
    """How an image of other proportions is fitted before that crop: its shorter side, proportions kept;
    both sides, proportions lost; or its longer side, proportions kept, with bars of colour `mean`."""
    max_patches: PositiveInt | None = None
    """Most patches of an image, which is then resized to whole patches with its proportions about kept,
    and never cropped; None means one size for all images. For a model with dynamic_image_size."""
    class_names: NameTuple | None = None
    """What each class is called, in the order of the logits; None if unknown."""
    pixel_type: PixelType = "uint8"
    """Type of the pixels: uint8 or uint16, whose largest values count as 1, or float32, which counts as
    it is. Images of more than 8 bits are arrays or TIFF files, see `vit_config.images.bands`."""
    several_labels: bool = False
    """Whether an image may have any number of the classes, each by a sigmoid of its logit, and not
    exactly one by a softmax of all."""
    exif: Exif = "ignore"
    """Whether a photo is turned first as its camera noted (EXIF), or taken as its pixels lie in the
    file, as libraries do."""
    license: str | None = None
    """Under which licence the weights are; None if unknown."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"mean has {len(self.mean)} channels, std has {len(self.std)}; give one each per channel"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std = {self.std}: every channel must be greater than 0")
        fitted = {"image_size": None, "crop_fraction": 1.0, "crop_mode": "center"}
        for name, default in fitted.items() if self.max_patches is not None else ():
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"max_patches = {self.max_patches} sizes each image by itself and crops nothing, but"
                    f" {name} = {value}; leave one of them out"
                )
        return self

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return height and width that an image is resized to, or to cover, for a crop of `size`."""
        height, width = (math.floor(side / self.crop_fraction) for side in size)
        return height, width

    def normalise(self, images: np.ndarray) -> np.ndarray:
        """Scale pixels by their type, subtract the mean, divide by the standard deviation.

        Args:
            images: (..., H, W, C) of `pixel_type`.

        Returns:
            (..., H, W, C) float32.

        Raises:
            InputError: the images are of another type, or have another number of channels than mean and
                std.
        """
        import numpy as np  # code that only states a preprocessing does without numpy

        if images.dtype != self.pixel_type:
            of = " pixels 0..255" if self.pixel_type == "uint8" else ""
            raise InputError(f"images are {images.dtype}, expected {self.pixel_type}{of}")
        if images.shape[-1] != len(self.mean):
            raise InputError(
                f"images have {images.shape[-1]} channels, the preprocessing has {len(self.mean)}"
            )
        width = images.shape[-2] if images.ndim > 1 else 1
        scaled = images.astype(np.float32, order="C")
        rows = scaled.reshape(-1, width * len(self.mean))  # numpy is slow where the last axis is short
        if self.pixel_type != "float32":
            rows /= np.float32(WHITE[self.pixel_type])
        rows -= np.tile(np.asarray(self.mean, np.float32), width)
        rows /= np.tile(np.asarray(self.std, np.float32), width)
        return scaled


def crop_fraction(size: int, resized: int) -> float:
    """Return the `Preprocess.crop_fraction` by which `size` pixels are kept of exactly `resized`.

    The plain quotient does not always do: dividing by it again may give a little less than `resized`.

    Raises:
        ConfigError: more pixels are to be kept than there are, or the numbers are not whole ones
            below 2^31.
    """
    if type(size) is not int or type(resized) is not int or not 0 < size <= resized < 2**31:
        raise ConfigError(f"a crop of {size} pixels does not fit into {resized}")
    fraction = size / resized
    while math.floor(size / fraction) < resized:
        fraction = math.nextafter(fraction, 0.0)
    return fraction
