"""Batches: nothing is lost, doubled, or dependent on threads and interruptions."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import numpy as np
import pytest

from vit_config import Augment, Preprocess, Recipe
from vit_config.augmentation import Mix
from vit_train.batches.data import (
    ImageDataset,
    eval_batches,
    open_dataset,
    steps_per_epoch,
    train_batches,
)
from vit_train.data import records
from vit_train.data.records import Records

pytestmark = pytest.mark.quick

COLOUR = Preprocess(mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))
DRAWN = [100, 101, 2, 10, 107, 5, 6, 111, 9, 108, 4, 103]
"""Images in their order; those that are mirrored begin with 100."""
CHANGES = Augment(shift=0.2, rotate=30.0, scale=0.1, flip=True)


@pytest.fixture(scope="module")
def rectangles(data_dir) -> ImageDataset:
    return open_dataset("tfds:tiny_rectangles", data_dir)


def batches_of(dataset, recipe, preprocess=COLOUR, size=(21, 15), **options) -> list:
    return list(train_batches(dataset, recipe, preprocess, image_size=size, **options))


def assert_same(batches: list, others: list) -> None:
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        assert batch.keys() == other.keys()
        for name in batch:
            assert batch[name].dtype == other[name].dtype
            np.testing.assert_array_equal(batch[name], other[name])


def test_a_rectangular_set_keeps_its_shape_and_names(rectangles):
    assert rectangles.image_shape == (21, 15, 3)
    assert rectangles.class_names == ("red", "green", "blue")
    batch = batches_of(rectangles, Recipe(epochs=1, batch_size=47))[0]
    assert batch["image"].shape == (47, 21, 15, 3)
    assert (batch["image"].dtype, batch["label"].dtype) == (np.float32, np.int32)
    counts = np.bincount(batch["label"]).tolist()
    assert counts == [16, 16, 15]


def test_batches_resume_bit_for_bit_within_and_across_epochs(rectangles):
    recipe = Recipe(epochs=3, batch_size=11, seed=5, augment=CHANGES)
    whole = batches_of(rectangles, recipe)
    assert len(whole) == 3 * steps_per_epoch(47, 11) == 12
    assert steps_per_epoch(11, 11) == 1
    for start in (1, 4, 6, 12):
        assert_same(batches_of(rectangles, recipe, start_step=start), whole[start:])


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_batches_do_not_depend_on_threads_or_the_cache(data_dir, rectangles, monkeypatch, cache_bytes):
    monkeypatch.setattr(records, "CACHE_BYTES", cache_bytes)
    fresh = open_dataset("tfds:tiny_rectangles", data_dir)
    recipe = Recipe(epochs=2, batch_size=5, augment=CHANGES)
    expected = batches_of(rectangles, recipe, num_threads=0)
    for num_threads in (1, 5):
        assert_same(batches_of(fresh, recipe, num_threads=num_threads), expected)


def test_each_epoch_is_every_record_once_in_an_order_of_its_own(rectangles):
    numbered = Records(
        [{"image": np.full((2, 3, 1), i, np.uint8), "label": 0} for i in range(30)],
        where="numbers",
        num_classes=1,
        image_shape=(2, 3, 1),
    )
    dataset = dataclasses.replace(rectangles, train=numbered)
    orders = {}
    for seed in (0, 1, 2**32 - 1):
        recipe = Recipe(epochs=2, batch_size=6, seed=seed)
        batches = batches_of(dataset, recipe, Preprocess(mean=(0.0,), std=(1.0,)), (2, 3))
        seen = np.round(255 * np.stack([b["image"][:, 0, 0, 0] for b in batches])).astype(int)
        for epoch in (0, 1):
            order = seen[5 * epoch : 5 * epoch + 5].ravel().tolist()
            assert sorted(order) == list(range(30))
            orders[seed, epoch] = order
    for one, other in itertools.combinations(orders.values(), 2):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


def test_augmentation_belongs_to_the_record_and_the_epoch(rectangles):
    def images(batch_size: int) -> list[set[bytes]]:
        recipe = Recipe(epochs=2, batch_size=batch_size, augment=CHANGES)
        every = np.concatenate([b["image"] for b in batches_of(dataset, recipe)])
        return [{image.tobytes() for image in every[start : start + 24]} for start in (0, 24)]

    copies = [rectangles.train[0]] * 24
    source = Records(copies, where="alike", num_classes=3, image_shape=(21, 15, 3))
    dataset = dataclasses.replace(rectangles, train=source)
    assert images(4) == images(6)
    first, second = images(4)
    assert len(first | second) == 48


def test_draws_stay_what_they_are(rectangles):
    """A run goes on with another version of this program."""
    images = [{"image": np.array([[[i], [100 + i]]], np.uint8), "label": 0} for i in range(12)]
    source = Records(images, where="numbers", num_classes=1, image_shape=(1, 2, 1))
    dataset = dataclasses.replace(rectangles, train=source)
    recipe = Recipe(epochs=1, batch_size=12, seed=3, augment=Augment(flip=True))
    (batch,) = batches_of(dataset, recipe, Preprocess(mean=(0.0,), std=(1.0,)), (1, 2))
    assert np.round(255 * batch["image"][:, 0, 0, 0]).astype(int).tolist() == DRAWN


def test_each_batch_is_mixed_by_a_draw_of_its_own(rectangles):
    recipe = Recipe(epochs=1, batch_size=12, mix=Mix(mixup=1.0))
    batches = batches_of(rectangles, recipe)
    shares = [set(batch["label"].ravel().tolist()) - {0.0, 1.0} for batch in batches]
    assert all(shares)
    assert not set.intersection(*shares)


def test_a_record_in_place_of_a_damaged_one_does_not_count():
    good, bad = {"image": np.ones((2, 3, 3), np.uint8), "label": 1}, {"image": b"no image", "label": 2}
    source = Records(
        [good, bad, good, good],
        where="mine",
        num_classes=3,
        image_shape=(2, 3, 3),
        on_damage="replace",
    )
    (batch,) = eval_batches(source, COLOUR, image_size=(2, 3), batch_size=5)
    assert batch["mask"].tolist() == [True, False, True, True, False]
    assert batch["label"].tolist() == [1, 1, 1, 1, 0]


def test_evaluation_counts_every_record_exactly_once(rectangles):
    batches = list(eval_batches(rectangles.test, COLOUR, image_size=(21, 15), batch_size=8))
    assert [batch["mask"].sum() for batch in batches] == [8, 8, 3]
    assert {batch["image"].shape for batch in batches} == {(8, 21, 15, 3)}
    assert not batches[-1]["image"][3:].any()
    assert not batches[-1]["label"][3:].any()
    mask = np.concatenate([batch["mask"] for batch in batches])
    labels = np.concatenate([batch["label"] for batch in batches])[mask]
    images = np.concatenate([batch["image"] for batch in batches])[mask]
    expected = [rectangles.test[i] for i in range(19)]
    assert labels.tolist() == [record["label"] for record in expected]
    np.testing.assert_array_equal(images, COLOUR.normalise(np.stack([r["image"] for r in expected])))


def test_closing_the_iterator_ends_its_threads(rectangles):
    before = set(threading.enumerate())
    recipe = Recipe(batch_size=7)
    batches = train_batches(rectangles, recipe, COLOUR, image_size=(21, 15), num_threads=3)
    next(batches)
    started = set(threading.enumerate()) - before
    assert started
    batches.close()
    for thread in started:
        thread.join(timeout=120)
        assert not thread.is_alive()


def test_training_keeps_the_whole_image_and_evaluation_crops(rectangles):
    cropping = COLOUR.replace(crop_fraction=0.75)
    recipe = Recipe(epochs=1, batch_size=47)
    assert_same(
        batches_of(rectangles, recipe, cropping, (14, 10)),
        batches_of(rectangles, recipe, COLOUR, (14, 10)),
    )
    evaluated = [
        next(eval_batches(rectangles.test, preprocess, image_size=(14, 10), batch_size=3))
        for preprocess in (COLOUR, cropping)
    ]
    assert (evaluated[0]["image"] != evaluated[1]["image"]).any()
