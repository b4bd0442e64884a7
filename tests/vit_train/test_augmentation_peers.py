"""Crops, colours, RandAugment and erasing are timm's and torchvision's, from the same draws."""

import numpy as np
import pytest
import torch
from PIL import Image

from parity.porting.reading.libraries.peers import import_timm
from vit_config import Augment, Preprocess
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD
from vit_train.augmentation.colors import color_jitter, three_augment
from vit_train.augmentation.crop import torchvision_box
from vit_train.augmentation.erase import erase
from vit_train.augmentation.rand_augment import OPERATIONS, Canvas
from vit_train.augmentation.views import Views

import_timm()
from timm.data import auto_augment, random_erasing, transforms  # noqa: E402
from torchvision.transforms import transforms as vision  # noqa: E402

PREPROCESS = Preprocess(mean=IMAGENET_MEAN, std=IMAGENET_STD)
FILL = tuple(round(255 * mean) for mean in IMAGENET_MEAN)
CANVAS = Canvas(FILL, Image.Resampling.BICUBIC)


class Draws:
    """Python's `random` and numpy's global functions, from a generator like ours."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.random = self.rng.random
        self.uniform = self.rng.uniform
        self.gauss = self.rng.normal

    def randint(self, low, high):
        return int(self.rng.integers(low, high, endpoint=True))

    def choice(self, options, count, replace, p):
        assert (replace, p) == (True, None)
        return [options[index] for index in self.rng.integers(0, len(options), count)]


def picture(height, width, seed=0):
    """Smooth and noisy parts, (height, width, 3) uint8."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 4, 3), np.uint8))
    image = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).copy()
    image[::7] = rng.integers(0, 256, image[::7].shape)
    return image


IMAGE = picture(37, 53)


@pytest.mark.parametrize("size", [(37, 53), (9, 97), (97, 9), (3, 2)])
@pytest.mark.parametrize("seed", range(20))
def test_a_box_is_timms(size, seed, monkeypatch):
    """Of the two long images most attempts fail, and the centre is taken."""
    monkeypatch.setattr(transforms, "random", Draws(seed))
    image = Image.fromarray(picture(*size))
    expected = transforms.RandomResizedCropAndInterpolation.get_params(image, (0.3, 1), (3 / 4, 4 / 3))
    box = torchvision_box(size, (0.3, 1.0), (3 / 4, 4 / 3), np.random.default_rng(seed))
    if 0 not in expected[2:]:
        assert box == expected


def test_a_box_is_torchvisions_from_its_own_draws(monkeypatch):
    """torchvision draws in float32, and takes the exponential in float32."""

    class Fixed:
        def __init__(self, numbers):
            self.numbers = list(numbers)

        def uniform(self, low, high):
            return low + (high - low) * self.numbers.pop(0)

        def integers(self, low, high, endpoint):
            return min(int(self.numbers.pop(0) * (high - low + 1)), high)

    rng, equal = np.random.default_rng(0), 0
    for _ in range(200):
        numbers = rng.random(4)
        stream = iter(numbers)
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.Tensor,
                "uniform_",
                lambda self, low, high, stream=stream: self.fill_(low + (high - low) * next(stream)),
            )
            patch.setattr(
                torch,
                "randint",
                lambda low, high, size, stream=stream: torch.tensor([int(next(stream) * high)]),
            )
            image = Image.fromarray(IMAGE)
            expected = vision.RandomResizedCrop.get_params(image, [0.3, 0.5], [3 / 4, 4 / 3])
        box = torchvision_box((37, 53), (0.3, 0.5), (3 / 4, 4 / 3), Fixed(numbers))  # pyright: ignore
        equal += box == tuple(expected)
    assert equal >= 199


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_an_operation_is_timms(number, monkeypatch):
    name = auto_augment._RAND_INCREASING_TRANSFORMS[number]
    hparams = {"img_mean": FILL, "interpolation": Image.Resampling.BICUBIC}
    for magnitude in (0.0, 3.3, 9.0, 10.0):
        for seed in (0, 1):  # of either sign
            monkeypatch.setattr(auto_augment, "random", Draws(seed))
            if name == "PosterizeIncreasing" and magnitude == 10.0:
                continue  # see below
            peer = auto_augment.AugmentOp(name, prob=1.0, magnitude=magnitude, hparams=hparams)
            expected = np.asarray(peer(Image.fromarray(IMAGE)))
            rng = np.random.default_rng(seed)
            actual = OPERATIONS[number](Image.fromarray(IMAGE), magnitude / 10.0, CANVAS, rng)
            np.testing.assert_array_equal(np.asarray(actual), expected)


def test_posterise_at_the_full_magnitude_is_black():
    """For timm an error since Pillow refuses to keep no bits, at one image in about 660."""
    black = OPERATIONS[4](Image.fromarray(IMAGE), 1.0, CANVAS, np.random.default_rng(0))
    assert not np.asarray(black).any()


@pytest.mark.parametrize("seed", range(25))
def test_the_chain_is_timms_of_deit(seed, monkeypatch):
    """Crop, flip, RandAugment and erasing, as `create_transform` of DeiT's and MAE's arguments orders
    them: pixels bit for bit. Where torch draws, it is told what ours drew."""
    rng = np.random.default_rng(seed)
    recipe = Augment(crop="torchvision", flip=True, policy="timm", erase=0.9)
    actual = Views(recipe, (21, 15), PREPROCESS).changed(IMAGE, rng)
    normalised = PREPROCESS.normalise(actual)
    erase(normalised, recipe.erase, rng)

    draws = Draws(seed)
    for module in (transforms, auto_augment, random_erasing):
        monkeypatch.setattr(module, "random", draws)
    monkeypatch.setattr(auto_augment.np.random, "choice", draws.choice)

    def coin(count):
        draws.uniform(-1.0, 1.0, 4)  # of the moves that this recipe does not make
        return torch.tensor([draws.random()], dtype=torch.float64)

    monkeypatch.setattr(torch, "rand", coin)
    monkeypatch.setattr(
        torch.Tensor,
        "normal_",
        lambda self: self.copy_(
            torch.from_numpy(draws.rng.standard_normal(tuple(self.shape), dtype=np.float32))
        ),
    )
    chain = import_timm().data.create_transform(
        (21, 15),
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.9,
        re_mode="pixel",
        re_count=1,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )
    chain.transforms[-1].device = "cpu"
    expected = chain(Image.fromarray(IMAGE)).numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(normalised, expected)


@pytest.mark.parametrize("seed", range(6))
def test_jitter_is_torchvisions(seed, monkeypatch):
    rng, again = np.random.default_rng(seed), np.random.default_rng(seed)
    actual = color_jitter(Image.fromarray(IMAGE), 0.3, rng)
    monkeypatch.setattr(torch, "randperm", lambda count: torch.from_numpy(again.permutation(count)))
    monkeypatch.setattr(torch, "empty", lambda count: torch.zeros(count, dtype=torch.float64))
    monkeypatch.setattr(
        torch.Tensor, "uniform_", lambda self, low, high: self.fill_(again.uniform(low, high))
    )
    expected = vision.ColorJitter(0.3, 0.3, 0.3)(Image.fromarray(IMAGE))
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


def test_three_augment_is_timms():
    """timm's `3a` policy of three equal parts, which is DeiT's: grey, solarised at 128, blurred."""
    image, seen = Image.fromarray(IMAGE), set()
    for seed in range(12):
        again = np.random.default_rng(seed)
        which = int(again.integers(3))
        radius = again.uniform(0.1, 2.0) if which == 2 else None
        expected = (
            lambda: vision.Grayscale(3)(image),
            lambda: auto_augment.solarize(image, 128),
            lambda radius=radius: auto_augment.gaussian_blur(image, radius),
        )[which]()
        actual = three_augment(image, np.random.default_rng(seed))
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
        seen.add(which)
    assert seen == {0, 1, 2}


def test_nothing_is_erased_with_the_rest_of_the_probability():
    image = np.zeros((21, 15, 3), np.float32)
    changed = 0
    for seed in range(200):
        copy = image.copy()
        erase(copy, 0.25, np.random.default_rng(seed))
        changed += bool(copy.any())
    assert 30 < changed < 70
