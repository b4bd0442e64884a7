"""Crops, resizing and RandAugment are TensorFlow's and Big Vision's, from the same draws.

tools/record_tensorflow.py recorded what they make; its docstring says how.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.support.tensorflow_draws import TensorflowDraws
from vit_train.augmentation import rand_augment_tensorflow as tensorflow_ops
from vit_train.augmentation.crop import tensorflow_box
from vit_train.augmentation.rand_augment_tensorflow import OPERATIONS, contrast_base, rand_augment
from vit_train.augmentation.tensorflow import resize_area, resize_bilinear, resize_shorter

RECORDED = np.load(Path(__file__).parent / "recorded" / "tensorflow_images.npz")
IMAGE = RECORDED["image"]
NAMES = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast",
    "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "Cutout", "SolarizeAdd",
)  # fmt: skip
RANGES = (((0.05, 1.0), (0.75, 1.33)), ((0.05, 1.0), (3 / 4, 4 / 3)), ((0.8, 0.9), (2.0, 3.0)))


class FixedDraws:
    """Gives a sign, and a third of every count."""

    def __init__(self, sign):
        self.sign = sign

    def random(self):
        return 0.5 if self.sign > 0 else 0.49

    def integers(self, count):
        return count // 3


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_big_visions_bit_for_bit(name):
    operation = OPERATIONS[NAMES.index(name)]
    for magnitude in (10, 7):
        for sign in (1, -1):
            actual = operation(IMAGE, magnitude / 10, FixedDraws(sign))  # pyright: ignore
            np.testing.assert_array_equal(actual, RECORDED[f"{name}.{magnitude}.{sign}"])


@pytest.mark.parametrize("size", [(16, 27), (9, 7), (38, 23)])
@pytest.mark.parametrize(("method", "resize"), [("bilinear", resize_bilinear), ("area", resize_area)])
def test_resizing_is_tensorflows_bit_for_bit(method, resize, size):
    np.testing.assert_array_equal(resize(IMAGE, size), RECORDED[f"{method}.{size[0]}x{size[1]}"])


@pytest.mark.parametrize("size", [(375, 500), (31, 97), (97, 31), (8, 5)])
@pytest.mark.parametrize("number", range(len(RANGES)))
def test_a_box_is_tensorflows(number, size):
    area, ratio = RANGES[number]
    actual = [
        tensorflow_box(size, area, ratio, TensorflowDraws(seed + 1000 * size[0], 7))  # pyright: ignore
        for seed in range(60)
    ]
    np.testing.assert_array_equal(actual, RECORDED[f"boxes.{number}.{size[0]}x{size[1]}"])


def test_the_last_place_is_never_drawn():
    """TensorFlow is off by one: a box of one pixel less than the image always lies at its start."""
    boxes = RECORDED["boxes.1.8x5"]
    assert len(boxes[boxes[:, 2] < 8]) > 15
    assert (boxes[:, 0] + boxes[:, 2] < 8)[boxes[:, 2] < 8].all()
    assert (boxes[:, 1] + boxes[:, 3] < 5)[boxes[:, 3] < 5].all()


def test_contrast_blends_with_a_number_of_pixels():
    dark = np.zeros((224, 224, 3), np.uint8)
    assert (contrast_base(dark) == 196).all()
    assert (contrast_base(np.zeros((256, 256, 3), np.uint8)) == 255).all()


def test_magnitude_ten_solarises_everything():
    np.testing.assert_array_equal(tensorflow_ops._solarize(IMAGE, 1.0, FixedDraws(1)), 255 - IMAGE)  # pyright: ignore


def test_layers_are_drawn_with_repetition_and_all_applied():
    rng = np.random.default_rng(3)
    actual = rand_augment(IMAGE, layers=2, magnitude=10.0, rng=rng)
    again = np.random.default_rng(3)
    first = OPERATIONS[int(again.integers(16))](IMAGE, 1.0, again)
    expected = OPERATIONS[int(again.integers(16))](first, 1.0, again)
    np.testing.assert_array_equal(actual, expected)


def test_the_shorter_side_is_resized():
    assert resize_shorter(IMAGE, 38).shape == (38, 46, 3)
    assert resize_shorter(IMAGE.transpose(1, 0, 2), 12).shape == (15, 12, 3)
