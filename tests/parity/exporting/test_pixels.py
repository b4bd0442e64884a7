"""The resize that is a part of exported programs is PIL's, pixel by pixel."""

import numpy as np
import pytest

from parity.exporting import pixels
from vit_config import Preprocess
from vit_config.images import pixels as by_pil

pytestmark = pytest.mark.quick

SIZE = (21, 15)
PICTURES = ((37, 41), (20, 90), (8, 9), (21, 15), (300, 64), (1, 50), (150, 22))


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("name", pixels.FILTERS)
def test_pixels_are_pils(name, mode):
    drawn = np.random.default_rng(1)
    for fraction, size in ((1.0, SIZE), (0.875, SIZE), (0.9, (16, 16))):
        preprocess = Preprocess(
            mean=(0.2, 0.5, 1.3), interpolation=name, crop_mode=mode, crop_fraction=fraction
        )
        for height, width in PICTURES:
            image = drawn.integers(0, 256, (height, width, 3), dtype=np.uint8)
            wanted = by_pil.fit(image, size, preprocess)
            planes = image.transpose(2, 0, 1)[None].astype(np.float64)
            actual = pixels.fit(np, planes, size, preprocess)[0].transpose(1, 2, 0)
            np.testing.assert_array_equal(actual, wanted, err_msg=f"{height}x{width} to {size}")


def test_normalising_is_that_of_files():
    preprocess = Preprocess(mean=(0.1, 0.2, 0.3), std=(0.3, 0.5, 0.7))
    image = np.random.default_rng(2).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    planes = image.transpose(0, 3, 1, 2).astype(np.float32)
    actual = pixels.normalise(np, planes, preprocess).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(actual, preprocess.normalise(image))
