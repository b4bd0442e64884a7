"""One image: what augmentation and fitting to a size do, and that nothing asked is nothing done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from vit_config import Augment, Preprocess
from vit_train.augmentation.affine import augment
from vit_train.data.images import fit_image

pytestmark = pytest.mark.quick

EVERYTHING = Augment(shift=0.3, rotate=90.0, scale=0.4, flip=True)


class Chosen:
    """In place of a generator: the four uniform numbers, and the flip."""

    def __init__(self, angle=0.0, scale=0.0, down=0.0, right=0.0, coin=1.0) -> None:
        self.numbers, self.coin = np.array([angle, scale, down, right]), coin

    def uniform(self, *_: Any) -> np.ndarray:
        return self.numbers

    def random(self) -> float:
        return self.coin


def change(image: np.ndarray, limits: Augment, **chosen: float) -> np.ndarray:
    rng: Any = Chosen(**chosen)
    return augment(image, limits, rng)


def noise(height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)


def test_nothing_asked_nothing_done():
    image = noise(7, 5, 3)
    assert augment(image, Augment(), np.random.default_rng(0)) is image


def test_a_picture_is_mirrored_by_the_coin_and_only_if_asked():
    image = noise(7, 5, 3)
    for coin, flip in ((0.4, True), (0.5, True), (0.4, False)):
        actual = change(image, Augment(flip=flip, shift=1e-9), coin=coin)
        expected = image[:, ::-1] if flip and coin < 0.5 else image
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_channels_are_independent_and_move_together(channels):
    image = noise(21, 15, channels)
    changed = augment(image, EVERYTHING, np.random.default_rng(3))
    assert (changed.shape, changed.dtype) == (image.shape, np.uint8)
    for channel in range(channels):
        alone = augment(image[:, :, channel, None], EVERYTHING, np.random.default_rng(3))
        np.testing.assert_array_equal(changed[:, :, channel, None], alone)


def test_the_same_stream_gives_the_same_image_and_another_another():
    image = noise(8, 8, 1)
    first, again, other = (augment(image, EVERYTHING, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_half_turns_whole_shifts_and_flips_move_pixels_exactly():
    image = noise(6, 10, 3)
    turned = change(image, Augment(rotate=180.0), angle=1.0)
    np.testing.assert_allclose(turned, image[::-1, ::-1], atol=1)  # PIL rounds down
    shifted = change(image, Augment(shift=0.5), down=1.0, right=-0.4)
    np.testing.assert_array_equal(shifted[3:, :8], image[:3, 2:])
    assert not shifted[:3].any()
    assert not shifted[:, 8:].any()
    mirrored = change(image, Augment(flip=True), coin=0.2)
    np.testing.assert_array_equal(mirrored, image[:, ::-1])


def test_a_quarter_turn_is_clockwise_about_the_centre_of_a_rectangle():
    image = noise(6, 10, 1)
    turned = change(image, Augment(rotate=90.0), angle=1.0)
    np.testing.assert_allclose(turned[:, 2:8], np.rot90(image[:, 2:8], -1), atol=1)


def test_scale_above_one_enlarges():
    image = np.zeros((12, 12, 1), np.uint8)
    image[4:8, 4:8] = 255
    larger = change(image, Augment(scale=0.5), scale=1.0)
    smaller = change(image, Augment(scale=0.5), scale=-1.0)
    assert (larger > 127).sum() == 36
    assert (smaller > 127).sum() == 4


def test_changes_stay_within_their_bounds_and_reach_them():
    image = np.zeros((41, 31, 1), np.uint8)
    image[20, 15] = 255
    rng = np.random.default_rng(0)
    places = []
    for _ in range(400):
        changed = augment(image, Augment(shift=0.2, rotate=40.0), rng)[:, :, 0].astype(float)
        places.append(np.argwhere(changed == changed.max())[0] - (20, 15))
    furthest = np.abs(places).max(axis=0)
    assert furthest.tolist() == [8, 6]


def test_one_field_more_does_not_change_the_others():
    image = noise(9, 9, 1)
    plain = augment(image, Augment(rotate=20.0), np.random.default_rng(5))
    flipping = augment(image, Augment(rotate=20.0, flip=True), np.random.default_rng(5))
    assert any(np.array_equal(flipping, candidate) for candidate in (plain, plain[:, ::-1]))


def test_fitting_follows_torchvisions_rule():
    image = noise(30, 20, 3)
    assert fit_image(image, (30, 20), Preprocess(crop_fraction=0.5)) is image
    # 8 / 0.875 = 9.14, so the shorter side becomes 9 and the other 9 * 30 / 20 = 13.5
    fitted = fit_image(image, (8, 8), Preprocess(crop_fraction=0.875))
    resized = np.asarray(Image.fromarray(image).resize((9, 13), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(fitted, resized[2:10, 0:8])
    wide = fit_image(image, (6, 10), Preprocess(interpolation="nearest"))
    resized = np.asarray(Image.fromarray(image).resize((10, 15), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(wide, resized[4:10])


def test_squashing_loses_the_proportions_as_in_timm():
    image = np.random.default_rng(5).integers(0, 256, (30, 20, 3), np.uint8)
    preprocess = Preprocess(crop_fraction=0.8, crop_mode="squash", interpolation="bilinear")
    fitted = fit_image(image, (8, 12), preprocess)
    whole = Image.fromarray(image).resize((15, 10), Image.Resampling.BILINEAR)  # (width, height)
    np.testing.assert_array_equal(fitted, np.asarray(whole)[1:9, 2:14])
