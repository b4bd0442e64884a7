"""Images of a data set, fitted to the model's image size."""

from __future__ import annotations

import numpy as np

from vit_config.images.pixels import fit
from vit_config.images.preprocess import Preprocess


def fit_image(image: np.ndarray, size: tuple[int, int], preprocess: Preprocess) -> np.ndarray:
    """Resize and crop an image of a data set by the rule of `vit_config.images.pixels`.

    An image that already has the size is returned as it is, whatever the preprocessing would crop: a set
    made for the model is seen whole.

    Args:
        image: (h, w, C) uint8, or of the type of `preprocess`.
        size: (H, W) in pixels.
        preprocess: its `interpolation`, `crop_fraction` and `crop_mode` apply.

    Returns:
        (H, W, C) of the image's type.

    Raises:
        InputError: `max_patches` gives each image a size of its own.
    """
    whole = image.shape[:2] == size and preprocess.max_patches is None
    return image if whole else fit(image, size, preprocess)
