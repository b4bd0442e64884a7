"""A check of the type of images that a model is given."""

from __future__ import annotations

from vit_config.errors import InputError


def check_image_type(images: str, parameters: str) -> None:
    """Refuse images of another type than the model's compute type, given the names of both.

    Raises:
        InputError: the pixels are not normalised, or of another floating type.
    """
    if images == parameters:
        return
    if "float" not in images:
        raise InputError(
            f"images are {images}, the model takes normalised ones in {parameters}; Preprocess.normalise"
            " makes them of uint8 pixels, and parity.load(...).logits takes pictures as they are"
        )
    raise InputError(
        f"images are {images}, the model computes in {parameters}, as its parameters are; cast the"
        f" images to {parameters}, or load the model with dtype = {images}"
    )
