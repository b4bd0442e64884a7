"""Uneven classes: epochs that draw them equally often, exactly, and weights that make up for them."""

import numpy as np
import pytest

from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import ConfigError, DataError, Preprocess, Recipe
from vit_config.job import Job
from vit_train.batches.balance import BalancedOrder, resolve_class_weights
from vit_train.batches.data import train_batches
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records

pytestmark = pytest.mark.quick

COUNTS = (13, 5, 2)
LABELS = [label for label, count in enumerate(COUNTS) for _ in range(count)]
SHAPE = (4, 3, 1)
BALANCED = Recipe(epochs=7, batch_size=4, seed=3, sampling="balanced")


class Uneven:
    """Images that show their number."""

    def __init__(self, labels=LABELS):
        self.labels = list(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": np.full(SHAPE, index, np.uint8), "label": self.labels[index]}


def dataset(raw=None, classes=3, several=False):
    raw = raw or Uneven()
    records = Records(raw, where="uneven", num_classes=classes, image_shape=SHAPE, several=several)
    return ImageDataset("uneven", records, records, classes, SHAPE, ("a", "b", "c")[:classes], "")


def drawn(recipe, **how):
    """The number and label of every image of a run, batch by batch."""
    batches = train_batches(
        dataset(),
        recipe,
        Preprocess(mean=(0.0,), std=(1.0,)),
        image_size=SHAPE[:2],
        num_threads=0,
        **how,
    )
    return [(np.rint(batch["image"][:, 0, 0, 0] * 255).astype(int), batch["label"]) for batch in batches]


def test_classes_and_their_images_come_equally_often():
    order = BalancedOrder(dataset().train, np.arange(2, dtype=np.uint64))
    for epochs in (1, 2, 3, 7):
        numbers = np.concatenate([order(epoch) for epoch in range(epochs)])
        of_class = np.bincount(np.array(LABELS)[numbers], minlength=3)
        assert of_class.sum() == epochs * 20
        assert np.ptp(of_class) <= 1
        times = np.bincount(numbers, minlength=20)
        assert all(np.ptp(times[np.array(LABELS) == label]) <= 1 for label in range(3))
    assert not np.array_equal(order(0), order(1))
    assert sorted(order(0).tolist()) != order(0).tolist()


def test_a_run_that_goes_on_draws_what_it_would_have():
    whole = drawn(BALANCED)
    assert len(whole) == 7 * 5
    for step in (1, 17, 34):
        for (images, labels), (others, theirs) in zip(
            drawn(BALANCED, start_step=step), whole[step:], strict=True
        ):
            np.testing.assert_array_equal(images, others)
            np.testing.assert_array_equal(labels, theirs)


def test_hosts_that_share_a_batch_draw_the_same():
    whole = drawn(BALANCED)
    parts = [drawn(BALANCED, rows=np.array(rows)) for rows in ([0], [1, 2], [3])]
    for number, (images, _) in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[number][0] for part in parts]), images)


def test_labels_that_files_do_not_list_are_read():
    class Unlisted(Uneven):
        labels = property(lambda self: None, lambda self, value: setattr(self, "_labels", value))

        def __len__(self):
            return len(self._labels)

        def __getitem__(self, index):
            return {"image": np.full(SHAPE, index, np.uint8), "label": self._labels[index]}

    key = np.arange(2, dtype=np.uint64)
    read = dataset(Unlisted()).train
    np.testing.assert_array_equal(BalancedOrder(read, key)(4), BalancedOrder(dataset().train, key)(4))


def test_balanced_weights_become_numbers():
    job, (line,) = resolve_class_weights(Job(TINY, Recipe(class_weights="balanced")), dataset())
    assert job.recipe.class_weights == pytest.approx([20 / (3 * count) for count in COUNTS])
    assert np.average(np.array(job.recipe.class_weights), weights=COUNTS) == pytest.approx(1)
    assert (
        line
        == "training images of each class: a 13 (weight 0.513), b 5 (weight 1.33), c 2 (weight 3.33)"
    )
    assert resolve_class_weights(job, dataset())[0] == job  # so that a run that goes on is the same run
    assert resolve_class_weights(Job(TINY, Recipe()), dataset()) == (Job(TINY, Recipe()), ())
    _, lines = resolve_class_weights(Job(TINY, BALANCED), dataset())
    assert lines[1] == (
        "an epoch has 6.667 images of each class; one of c comes 3.33 times, one of a 0.513 times"
    )


def test_weights_for_other_classes_and_a_class_without_images():
    with pytest.raises(ConfigError) as caught:
        Job(TINY, Recipe(class_weights=(1.0, 2.0))).check()
    one_line(caught.value, "class_weights has 2 numbers", "num_classes = 11")
    several = Recipe(labels="several", loss="sigmoid_mean")
    with pytest.raises(ConfigError) as caught:
        Job(TINY.replace(head_activation="softmax"), several).check()
    one_line(caught.value, 'labels = "several"', 'head_activation = "softmax"')
    for recipe in (BALANCED, Recipe(class_weights="balanced")):
        with pytest.raises(DataError) as caught:
            resolve_class_weights(Job(TINY, recipe), dataset(Uneven([0, 0, 2])))
        one_line(caught.value, "class b has no training images")
    with pytest.raises(DataError) as caught:
        resolve_class_weights(Job(TINY, BALANCED), dataset(Uneven([0, 1, 3])))
    one_line(caught.value, "label 3 is not one of num_classes = 3")


def test_images_with_any_number_of_labels():
    actual = dataset(Uneven([(0, 2), (), (1,), (2,)]), several=True)
    recipe = Recipe(epochs=1, batch_size=4, labels="several", loss="sigmoid_mean")
    (batch,) = train_batches(
        actual, recipe, Preprocess(mean=(0.0,), std=(1.0,)), image_size=SHAPE[:2], num_threads=0
    )
    numbers = np.rint(batch["image"][:, 0, 0, 0] * 255).astype(int)
    expected = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    assert batch["label"].dtype == np.float32
    np.testing.assert_array_equal(batch["label"], expected[numbers])
    counted, _ = resolve_class_weights(Job(TINY, recipe.replace(class_weights="balanced")), actual)
    assert counted.recipe.class_weights == pytest.approx([4 / 3, 4 / 3, 2 / 3])
    with pytest.raises(DataError) as caught:
        dataset(Uneven([(0, 3)]), several=True).train[0]
    one_line(caught.value, "label 3 is not one of num_classes = 3")
    with pytest.raises(DataError) as caught:
        dataset(Uneven([2]), several=True).train[0]
    one_line(caught.value, "label 2 is no tuple of whole numbers")
