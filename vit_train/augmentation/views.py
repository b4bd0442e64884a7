"""Views of a training image before normalisation: a crop, moves, other colours."""

from __future__ import annotations

import numpy as np
from PIL import Image

from vit_config.augmentation import Augment
from vit_config.errors import DataError
from vit_config.images.pixels import through_pil
from vit_config.images.preprocess import Preprocess
from vit_train.augmentation import rand_augment_tensorflow
from vit_train.augmentation.affine import Move, apply_moves, draw_moves
from vit_train.augmentation.colors import color_jitter, three_augment
from vit_train.augmentation.crop import Box, random_box, tensorflow_box, torchvision_box
from vit_train.augmentation.rand_augment import Canvas, rand_augment
from vit_train.augmentation.tensorflow import resize_bilinear, resize_shorter
from vit_train.data.images import fit_image


class Views:
    """A recipe's changes to images, for a model's size.

    Raises:
        DataError: colours change, but the images are not RGB; or a crop or the devices compute in 8
            bits, but they have more.
    """

    def __init__(
        self,
        changes: Augment,
        size: tuple[int, int],
        preprocess: Preprocess,
        on_devices: bool = False,
    ) -> None:
        self._changes, self._size, self._preprocess = changes, size, preprocess
        channels = len(preprocess.mean)
        coloured = channels == 3 and preprocess.pixel_type == "uint8"
        for name in ("policy", "color_jitter"):
            value = getattr(changes, name)
            if value != Augment.model_fields[name].default and not coloured:
                raise DataError(
                    f"augment.{name} = {value!r} changes colours, but images have {channels} channels"
                    f"{'' if preprocess.pixel_type == 'uint8' else f' of {preprocess.pixel_type}'};"
                    " leave it out"
                )
        if preprocess.pixel_type != "uint8" and changes.crop in ("tensorflow", "random"):
            raise DataError(
                f'augment.crop = "{changes.crop}" is for 8 bits, but pixels are {preprocess.pixel_type};'
                ' use "torchvision"'
            )
        if preprocess.pixel_type != "uint8" and on_devices:
            raise DataError(
                f"device_side sends images of 8 bits, but pixels are {preprocess.pixel_type}; leave it"
                " out"
            )
        fill = tuple(min(255, round(255 * mean)) for mean in preprocess.mean)
        self._canvas = Canvas(fill, Image.Resampling.BICUBIC)

    def changed(self, image: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Make one view of an image, in timm's and Big Vision's order: crop, moves, flip, policy,
        jitter.

        Args:
            image: (h, w, C) of the type of the preprocessing.
            rng: None if nothing is drawn: the image is fitted to the size.

        Returns:
            (H, W, C) of that type.
        """
        if rng is None:
            return fit_image(image, self._size, self._preprocess)
        changes = self._changes
        image, moves = self._cropped(image, rng)
        size = self._size if moves else (image.shape[0], image.shape[1])
        image = apply_moves(image, [*moves, *draw_moves(size, changes, rng)])
        if changes.policy == "big_vision":
            layers, magnitude = changes.policy_layers, changes.policy_magnitude
            image = rand_augment_tensorflow.rand_augment(
                image, layers=layers, magnitude=magnitude, rng=rng
            )
        if changes.policy not in ("timm", "three") and not changes.color_jitter:
            return image
        return np.asarray(self._recoloured(Image.fromarray(image), rng))

    def _cropped(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, list[Move]]:
        """Crop an image; return it with the moves that PIL still has to make to bring it to the size."""
        changes, sides = self._changes, (image.shape[0], image.shape[1])
        match changes.crop:
            case "torchvision":
                box = torchvision_box(sides, changes.crop_area, changes.crop_ratio, rng)
                resample = Image.Resampling[changes.crop_filter.upper()]
                height, width = self._size
                return _cut(image, box), [lambda plane: plane.resize((width, height), resample)]
            case "tensorflow":
                image = _cut(image, tensorflow_box(sides, changes.crop_area, changes.crop_ratio, rng))
                return resize_bilinear(image, self._size), []
            case "random":
                assert changes.crop_resize is not None
                image = resize_shorter(image, changes.crop_resize)
                box = random_box((image.shape[0], image.shape[1]), self._size, rng)
                return _cut(image, box), []
            case _:
                return fit_image(image, self._size, self._preprocess), []

    def _recoloured(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        changes = self._changes
        if changes.policy == "timm":
            image = rand_augment(
                image,
                layers=changes.policy_layers,
                magnitude=changes.policy_magnitude,
                deviation=changes.policy_deviation,
                canvas=self._canvas,
                rng=rng,
            )
        elif changes.policy == "three":
            image = three_augment(image, rng)
        return color_jitter(image, changes.color_jitter, rng) if changes.color_jitter else image


def lay_out(image: np.ndarray, square: np.ndarray, filter: str) -> tuple[int, int]:
    """Copy an image into the upper left corner of a square; one that is larger is reduced first.

    Args:
        image: (h, w, C) uint8.
        square: (S, S, C) uint8, changed in place.
        filter: PIL's filter that reduces the image.

    Returns:
        The height and width of the image on the square.
    """
    height, width = image.shape[:2]
    if (longer := max(height, width)) > (side := len(square)):
        height, width = (max(round(each * side / longer), 1) for each in (height, width))
        resample = Image.Resampling[filter.upper()]
        image = through_pil(image, lambda plane: plane.resize((width, height), resample))
    square[:height, :width] = image
    return height, width


def _cut(image: np.ndarray, box: Box) -> np.ndarray:
    top, left, height, width = box
    return image[top : top + height, left : left + width]
