"""A check of the type of images that a model is given."""

from __future__ import annotations

from typing import Any

from vit_config.errors import InputError

OTHERS = {"jax": ("torch",), "torch": ("numpy", "jax", "jaxlib")}
"""Libraries whose arrays a framework does not take."""


def check_image_library(images: Any, framework: str) -> None:
    """Refuse an array of a library that the model's framework does not take.

    Raises:
        InputError: it is of another framework.
    """
    library = type(images).__module__.partition(".")[0]
    if library in OTHERS[framework]:
        make = "images.numpy()" if framework == "jax" else "torch.from_numpy(numpy.array(images))"
        raise InputError(
            f"images are of {library}, the model is of {framework}; give {make}, in JAX with channels"
            " last, in PyTorch first"
        )


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
