"""Changes on the devices are the host's: the same pixels for the same box, and draws equal in
distribution, by Kolmogorov's and Smirnov's test of two samples with fixed seeds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from PIL import Image
from scipy.stats import ks_2samp

from tests.support.tiny_tfds import write_tiny_set
from vit_config import Augment, ConfigError, DataError, Mix, Preprocess, Recipe
from vit_jax.train import augment as on_devices
from vit_train.augmentation import colors, erase, views
from vit_train.augmentation.crop import torchvision_box
from vit_train.augmentation.mixing import draw_mixing, mixed_images
from vit_train.batches.data import open_dataset, train_batches

SIDE, SIZE, COUNT = 48, (21, 15), 2000
PREPROCESS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
RECIPE = Recipe(
    epochs=2,
    batch_size=8,
    device_side=SIDE,
    augment=Augment(crop="torchvision", flip=True, color_jitter=0.3, erase=0.5, repeats=2),
    mix=Mix(mixup=0.8, cutmix=1.0, mode="elem"),
)


def picture(height, width):
    """Smooth and noisy parts, (height, width, 3) uint8."""
    rng = np.random.default_rng(height)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 4, 3), np.uint8))
    image = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).copy()
    image[::7] = rng.integers(0, 256, image[::7].shape)
    return image


def assert_same_distribution(ours, theirs):
    """Compare two samples column by column."""
    for one, other in zip(np.transpose(ours), np.transpose(theirs), strict=True):
        statistics: Any = ks_2samp(one, other)
        assert statistics.pvalue > 0.01


def of_devices(draw):
    """Draw `COUNT` times by keys of their own."""
    return jax.device_get(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(5), COUNT)))


@pytest.mark.parametrize("size", [(375, 500), (300, 40)], ids=["photograph", "strip"])
def test_boxes_are_equal_in_distribution(size):
    """Of the strip most attempts fail, and the box at the centre is taken."""
    limits = ((0.08, 1.0), (3 / 4, 4 / 3))
    ours = np.transpose(of_devices(lambda key: on_devices.draw_box(key, jnp.array(size), *limits)))
    rng = np.random.default_rng(1)
    theirs = np.array([torchvision_box(size, *limits, rng) for _ in range(COUNT)])
    for top, left, h, w in ours:
        assert 0 <= top <= size[0] - h
        assert 0 <= left <= size[1] - w

    def measures(boxes):
        top, left, h, w = np.transpose(boxes)
        rest = np.maximum(size - np.stack([h, w], 1), 1)
        return np.stack([h * w, w / h, top / rest[:, 0], left / rest[:, 1]], 1)

    assert_same_distribution(measures(ours), measures(theirs))


def test_a_flip_has_probability_one_half_and_only_if_asked():
    square = np.zeros((SIDE, SIDE, 3), np.uint8)
    size = views.lay_out(picture(21, 15), square, "bicubic")
    whole = Augment(crop="torchvision", crop_area=(1.0, 1.0), crop_ratio=(15 / 21, 15 / 21))
    for flip, low, high in ((True, 0.42, 0.58), (False, 0.0, 0.0)):
        recipe = RECIPE.replace(augment=whole.replace(flip=flip), mix=Mix())
        changes = on_devices.make_changes(recipe, PREPROCESS, SIZE)
        draws = np.stack([np.zeros(200), np.arange(200), np.zeros(200)], 1).astype(np.int32)
        batch = {
            "image": jnp.asarray(np.repeat(square[None], 200, 0)),
            "size": jnp.asarray(np.repeat([size], 200, 0)),
            "draw": jnp.asarray(draws),
            "label": jnp.zeros(200),
        }
        images = np.asarray(changes(batch)["image"])
        plain = PREPROCESS.normalise(picture(21, 15))
        mirrored = np.abs(images - plain[:, ::-1]).max((1, 2, 3)) < 1e-6
        same = np.abs(images - plain).max((1, 2, 3)) < 1e-6
        assert (mirrored | same).all()
        assert low <= mirrored.mean() <= high


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_a_box_becomes_the_hosts_pixels(filter):
    """Within a level, for float32 decides ties otherwise; PIL resizes the width first, or last."""
    image = picture(SIDE, SIDE)
    resize = jax.jit(lambda box: on_devices.resized(jnp.asarray(image), box, SIZE, filter))
    differ = []
    for top, left, h, w in [
        (3, 5, 40, 43),
        (0, 7, 48, 16),
        (9, 0, 7, 30),
        (10, 11, 21, 15),
        (1, 2, 1, 1),
    ]:
        cut = Image.fromarray(image[top : top + h, left : left + w])
        expected = np.asarray(cut.resize((15, 21), Image.Resampling[filter.upper()]))
        differ.append(np.abs(np.asarray(resize((top, left, h, w))) - expected).ravel())
    assert np.concatenate(differ).max() <= 1
    assert np.concatenate(differ).mean() < 0.02


def test_a_larger_image_is_reduced_to_the_square():
    square = np.zeros((SIDE, SIDE, 3), np.uint8)
    assert views.lay_out(picture(96, 64), square, "bilinear") == (48, 32)
    expected = Image.fromarray(picture(96, 64)).resize((32, 48), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(square[:, :32], np.asarray(expected))
    assert not square[:, 32:].any()


def test_colours_are_the_hosts():
    """Each change within a level of PIL's, and their order and factors equal in distribution."""
    image = picture(37, 53)
    by_devices = (on_devices.brightness, on_devices.contrast, on_devices.saturation)
    for ours, theirs in zip(by_devices, colors.JITTERED, strict=True):
        for factor in (0.0, 0.7, 1.0, 1.3):
            actual = np.asarray(ours(jnp.asarray(image, jnp.float32), jnp.float32(factor)))
            expected = np.asarray(theirs(Image.fromarray(image)).enhance(factor))
            assert np.abs(actual - expected).max() <= 1
            assert (actual != expected).mean() < 0.02
    image = picture(7, 5)

    def measures(changed):
        return [*changed.reshape(-1, 3).mean(0), changed.std()]

    drawn = of_devices(lambda key: on_devices.color_jitter(key, jnp.asarray(image, jnp.float32), 0.4))
    rng = np.random.default_rng(2)
    theirs = (colors.color_jitter(Image.fromarray(image), 0.4, rng) for _ in range(COUNT))
    assert_same_distribution(
        [measures(each) for each in drawn], [measures(np.asarray(each)) for each in theirs]
    )


def test_erased_rectangles_are_equal_in_distribution():
    def measures(image):
        rows, columns = np.flatnonzero(image.any((1, 2))), np.flatnonzero(image.any((0, 2)))
        if not len(rows):
            return [0, 0, 0, -1, -1, 0]
        h, w, top, left = len(rows), len(columns), rows[0], columns[0]
        return [h, w, h * w, top, left, image[top, left, 1]]

    ours = of_devices(lambda key: on_devices.erased(key, jnp.zeros((*SIZE, 3)), 0.6))
    theirs = np.zeros((COUNT, *SIZE, 3), np.float32)
    rng = np.random.default_rng(3)
    for image in theirs:
        erase.erase(image, 0.6, rng)
    assert_same_distribution([measures(each) for each in ours], [measures(each) for each in theirs])


@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_images_are_mixed_as_on_the_host(mode):
    images = np.random.default_rng(0).standard_normal((6, *SIZE, 3)).astype(np.float32)
    mix = jax.jit(on_devices.mixed_images)
    for seed in range(4):
        mixing = draw_mixing(Mix(mixup=0.8, cutmix=1.0, mode=mode), 6, SIZE, np.random.default_rng(seed))
        actual = mix(images, **mixing.in_32_bits())
        np.testing.assert_allclose(actual, mixed_images(images, mixing), atol=1e-6)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_set(folder)
    return open_dataset("tfds:tiny_rectangles", folder)


def test_a_batch_is_the_same_on_any_devices_and_by_any_rows(dataset):
    """Images follow from seed, epoch, record and view alone."""
    how = {"image_size": SIZE, "num_threads": 0, "start_step": 3}
    rows = np.array([1, 2, 5])
    whole: Any = next(train_batches(dataset, RECIPE, PREPROCESS, **how))
    part: Any = next(train_batches(dataset, RECIPE, PREPROCESS, rows=rows, **how))
    assert set(part) == {"image", "size", "draw", "label", "partner", "share", "rest", "box"}
    for name, value in part.items():
        np.testing.assert_array_equal(value, whole[name][rows])
    assert whole["image"].dtype == np.uint8
    changes = on_devices.make_changes(RECIPE, PREPROCESS, SIZE)
    alone = changes(jax.device_put(whole, jax.local_devices()[0]))
    assert set(alone) == {"image", "label"}
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, P("data"))
    mapped = {name: value.reshape(8, 1, *value.shape[1:]) for name, value in whole.items()}
    for batch in (whole, mapped):
        spread = changes(jax.device_put(batch, split))
        assert spread["image"].sharding.is_equivalent_to(split, spread["image"].ndim)
        np.testing.assert_allclose(
            np.asarray(spread["image"]).reshape(alone["image"].shape), alone["image"], atol=1e-6
        )
    other = changes({**jax.device_put(whole), "draw": jnp.asarray(whole["draw"] + 1)})
    assert np.abs(np.asarray(other["image"]) - alone["image"]).max() > 0.1


def test_what_the_devices_do_not_do_is_refused(dataset):
    with pytest.raises(ConfigError, match=r'device_side = 48 with augment\.policy = "timm"'):
        RECIPE.replace(augment=RECIPE.augment.replace(policy="timm"))
    deep = PREPROCESS.replace(pixel_type="float32")
    plain = RECIPE.replace(augment=RECIPE.augment.replace(color_jitter=0.0))
    with pytest.raises(DataError, match="device_side sends images of 8 bits, but pixels are float32"):
        next(train_batches(dataset, plain, deep, image_size=SIZE, num_threads=0))
