"""Worker processes: the batches of threads, bit for bit, for any number of them."""

import multiprocessing
import os
import signal

import numpy as np
import pytest

from tests.support.tiny_tfds import CLASS_NAMES, png, tiny_image
from vit_config import Augment, DataError, Preprocess, Recipe
from vit_train.data import open_dataset, train_batches

GREY = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
RECIPE = Recipe(
    epochs=2, batch_size=6, augment=Augment(crop="torchvision", flip=True, color_jitter=0.3, erase=0.5)
)
SIZE = (21, 15)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASS_NAMES):
        (folder / name).mkdir()
        for index in range(9):
            (folder / name / f"{index}.png").write_bytes(png(tiny_image(label, rng)))
    (folder / CLASS_NAMES[0] / "4.png").write_bytes(b"\x89PNG and no more")
    return folder


def opened(root):
    dataset = open_dataset(f"folder:{root}", root)
    dataset.train.on_damage = "replace"
    return dataset


def test_batches_do_not_depend_on_their_number(root):
    plain = opened(root)
    expected = [*train_batches(plain, RECIPE, GREY, image_size=SIZE, num_threads=0)]
    assert len(expected) == 2 * 4
    for workers, start in ((1, 5), (2, 0)):
        dataset = opened(root)
        options = {"image_size": SIZE, "start_step": start, "num_workers": workers}
        found = [*train_batches(dataset, RECIPE, GREY, **options)]
        assert len(found) == len(expected) - start
        for ours, theirs in zip(found, expected[start:], strict=True):
            for name in ("image", "label"):
                np.testing.assert_array_equal(ours[name], theirs[name])
    assert dataset.train.damaged.keys() == plain.train.damaged.keys() != set()
    assert [str(e) for e in dataset.train.damaged.values()] == [
        str(e) for e in plain.train.damaged.values()
    ]


def test_what_a_worker_raises_is_raised_and_a_lost_worker_is_one_line(root):
    dataset = opened(root)
    dataset.train.on_damage = "refuse"
    with pytest.raises(DataError, match=r"4\.png: damaged"):
        [*train_batches(dataset, RECIPE, GREY, image_size=SIZE, num_workers=1)]
    batches = train_batches(opened(root), RECIPE, GREY, image_size=SIZE, num_workers=1)
    next(batches)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(DataError, match="1 worker processes was ended from outside"):
        list(batches)
