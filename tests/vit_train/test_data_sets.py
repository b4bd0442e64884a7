"""Data sets: what is opened is what was stored, and is recognised again."""

from __future__ import annotations

import gzip
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from tests.support.small_sets import write_mnist5k
from tests.support.tiny_tfds import CLASS_NAMES, jpeg, png, tiny_image, write_tiny_set
from vit_config import Preprocess
from vit_train.batches.data import ImageDataset, eval_batches, open_dataset
from vit_train.batches.statistics import channel_statistics
from vit_train.data import digits
from vit_train.data.records import Records

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def digits_set(data_dir) -> ImageDataset:
    return open_dataset("digits", data_dir)


@pytest.fixture(scope="module")
def rectangles(data_dir) -> ImageDataset:
    return open_dataset("tfds:tiny_rectangles", data_dir)


def contents(split: Records) -> list[tuple[bytes, Any]]:
    every = [split[index] for index in range(len(split))]
    return sorted((record["image"].tobytes(), record["label"]) for record in every)


def test_digits_are_scikit_learns_in_its_split_without_loss(digits_set):
    known: Any = load_digits()
    expected = [
        ((image * 15).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(known.images, known.target, strict=True)
    ]
    assert contents(digits_set.train) == sorted(expected[:898])
    assert contents(digits_set.test) == sorted(expected[898:])
    assert len(digits_set.test) == 899
    train_images = {image for image, _ in contents(digits_set.train)}
    assert not train_images & {image for image, _ in contents(digits_set.test)}
    assert (digits_set.image_shape, digits_set.num_classes) == ((8, 8, 1), 10)
    assert digits_set.class_names == tuple("0123456789")


def test_preparing_digits_is_quiet_and_leaves_one_folder(tmp_path, capfd):
    first = open_dataset("digits", tmp_path / "new" / "folder")
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["digits"]
    again = open_dataset("tfds:digits", tmp_path / "new" / "folder")
    assert first.fingerprint == again.fingerprint


def test_the_slower_of_two_preparing_processes_discards_its_work(tmp_path):
    for attempt in ("faster", "slower"):
        (tmp_path / attempt).mkdir()
        (tmp_path / attempt / "who").write_text(attempt)
        digits._publish(tmp_path / attempt, tmp_path / "final")
    assert (tmp_path / "final" / "who").read_text() == "faster"


def test_tensorflow_is_not_loaded(digits_set):
    assert digits_set.train[0]["image"].any()
    assert "tensorflow" not in sys.modules


def test_a_fingerprint_tells_contents_apart(tmp_path, rectangles):
    prints = {rectangles.fingerprint}
    for folder, options in {
        "same": {},
        "seed": {"seed": 1},
        "size": {"splits": {"train": 48, "test": 19}},
        "name": {"name": "other_rectangles"},
    }.items():
        write_tiny_set(tmp_path / folder, **options)
        name = options.get("name", "tiny_rectangles")
        prints.add(open_dataset(f"tfds:{name}", tmp_path / folder).fingerprint)
        assert len(prints) == {"same": 1, "seed": 2, "size": 3, "name": 4}[folder]


def test_a_split_without_published_labels_gives_way_to_validation(tmp_path):
    def record(split, index, rng):
        return {"image": png(tiny_image(0, rng)), "label": -1 if split == "test" else 0}

    sizes = {"train": 5, "test": 7, "validation": 3}
    write_tiny_set(tmp_path, splits=sizes, record=record)
    assert len(open_dataset("tfds:tiny_rectangles:1.0.0", tmp_path).test) == 3


def test_a_grey_file_in_a_colour_set_becomes_colour(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (21, 15), np.uint8)
    write_tiny_set(tmp_path, record=lambda *_: {"image": png(grey), "label": 0})
    image = open_dataset("tfds:tiny_rectangles", tmp_path).train[0]["image"]
    np.testing.assert_array_equal(image, np.stack([grey] * 3, axis=-1))


def test_statistics_are_those_of_all_training_pixels(rectangles):
    pixels = np.stack([rectangles.train[i]["image"] for i in range(47)]) / 255
    mean, std = channel_statistics(rectangles.train)
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 1, 2)), rtol=1e-11)
    np.testing.assert_allclose(std, pixels.std(axis=(0, 1, 2)), rtol=1e-11)


def test_photographs_of_many_sizes_are_read_and_fitted(tmp_path):
    def record(split, index, rng):
        image = tiny_image(index % 3, rng, size=(20 + index % 7, 31 - index % 9))
        return {"image": jpeg(image), "label": index % 3}

    features = {
        "image": tfds.features.Image(),
        "label": tfds.features.ClassLabel(names=CLASS_NAMES),
    }
    write_tiny_set(tmp_path, features=features, record=record)
    dataset = open_dataset("tfds:tiny_rectangles", tmp_path)
    assert dataset.image_shape == (None, None, 3)
    batches = eval_batches(dataset.test, Preprocess(), image_size=(21, 15), batch_size=19)
    assert next(batches)["image"].shape == (19, 21, 15, 3)
    pixels = [dataset.train[i]["image"].reshape(-1, 3) / 255 for i in range(47)]
    mean, std = channel_statistics(dataset.train)
    np.testing.assert_allclose(mean, np.concatenate(pixels).mean(axis=0), rtol=1e-11)
    np.testing.assert_allclose(std, np.concatenate(pixels).std(axis=0), rtol=1e-11)


def test_many_channels_can_be_stored_as_a_tensor(tmp_path):
    stored = np.random.default_rng(0).integers(0, 256, (21, 15, 5), np.uint8)
    features = {
        "image": tfds.features.Tensor(shape=(21, 15, 5), dtype=np.uint8),
        "label": tfds.features.ClassLabel(num_classes=3),
    }
    write_tiny_set(tmp_path, features=features, record=lambda *_: {"image": stored, "label": 0})
    image = open_dataset("tfds:tiny_rectangles", tmp_path).train[0]["image"]
    np.testing.assert_array_equal(image, stored)


def test_mnist5k_holds_out_every_fifth_image(tmp_path, monkeypatch):
    path = write_mnist5k(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    dataset = open_dataset("mnist5k", tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.image_shape) == (16, 4, (28, 28, 1))
    assert dataset.class_names == tuple("0123456789")
    rows = [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    assert dataset.test[1]["image"].reshape(-1).tolist() == [int(x) for x in rows[9][:-1]]
    assert [dataset.test[index]["label"] for index in range(4)] == [2, 4, 7, 9]
    assert dataset.fingerprint == open_dataset("mnist5k", tmp_path).fingerprint
