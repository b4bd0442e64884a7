"""Each of several processes reads its rows of every batch; together they are the batches of one."""

import numpy as np
import pytest

from vit_config import Preprocess, Recipe
from vit_config.augmentation import Augment, Mix
from vit_train.batches.data import eval_batches, train_batches
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records
from vit_train.dry_run import DrawnImages

SHAPE, CLASSES, BATCH = (7, 5, 3), 5, 12
HALF = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
SHARES = (np.array([0, 1, 2]), np.array([6, 7, 8]), np.array([3, 4, 5, 9, 10, 11]))
MIXES = {
    "none": Mix(),
    "batch": Mix(mixup=0.8),
    "pair": Mix(mixup=0.8, cutmix=1.0, mode="pair"),
    "big_vision": Mix(mixup=0.5, style="big_vision"),
}


class Watched(DrawnImages):
    """Notes which images are read."""

    def __init__(self, count):
        super().__init__(count, SHAPE, CLASSES, several=False)
        self.read = []

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


def dataset(count=29):
    raw = Watched(count)
    records = Records(raw, where="drawn", num_classes=CLASSES, image_shape=SHAPE)
    records._cache = None  # every reading shows
    return raw, ImageDataset("drawn", records, records, CLASSES, SHAPE, None, "")


def epoch(recipe, rows):
    raw, data = dataset()
    how = {"image_size": SHAPE[:2], "num_threads": 0}
    return raw.read, list(train_batches(data, recipe, HALF, rows=rows, **how))


@pytest.mark.parametrize("mix", MIXES)
def test_shares_of_training_batches_are_those_of_whole_ones(mix):
    recipe = Recipe(epochs=1, batch_size=BATCH, mix=MIXES[mix], augment=Augment(flip=True, erase=0.5))
    everything, whole = epoch(recipe, None)
    shares = [epoch(recipe, rows) for rows in SHARES]
    for step, batch in enumerate(whole):
        for rows, (_, batches) in zip(SHARES, shares, strict=True):
            for name, values in batch.items():
                np.testing.assert_array_equal(batches[step][name], values[rows])
    read = [index for indices, _ in shares for index in indices]
    if mix == "none":
        assert sorted(read) == sorted(everything)  # each record once over all processes
    for rows, (indices, _) in zip(SHARES, shares, strict=True):
        assert len(indices) <= 2 * len(rows) * len(whole)


def test_shares_of_an_evaluation_count_every_record_once():
    raw, data = dataset()
    how = {"image_size": SHAPE[:2], "batch_size": BATCH, "num_threads": 0}
    whole = list(eval_batches(data.test, HALF, **how))
    raw.read.clear()
    shares = [list(eval_batches(data.test, HALF, rows=rows, **how)) for rows in SHARES]
    assert sorted(raw.read) == list(range(29))
    for step, batch in enumerate(whole):
        for rows, batches in zip(SHARES, shares, strict=True):
            for name, values in batch.items():
                np.testing.assert_array_equal(batches[step][name], values[rows])
    assert sum(batch["mask"].sum() for batches in shares for batch in batches) == 29
