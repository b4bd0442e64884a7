"""Batches of a recipe with everything on: the same however they are made, repeated as DeiT does."""

import numpy as np
import pytest
import torch

from tests.support.tiny_tfds import write_tiny_set
from vit_config import Augment, DataError, Mix, Preprocess, Recipe
from vit_train.augmentation.views import Views
from vit_train.batches.data import open_dataset, train_batches

pytestmark = pytest.mark.quick

PREPROCESS = Preprocess(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
EVERYTHING = Recipe(
    epochs=2,
    batch_size=6,
    augment=Augment(
        crop="torchvision",
        flip=True,
        rotate=10.0,
        policy="timm",
        color_jitter=0.3,
        erase=0.5,
        repeats=3,
    ),
    mix=Mix(mixup=0.8, cutmix=1.0),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_set(folder)
    return open_dataset("tfds:tiny_rectangles", folder)


def _batches(dataset, recipe, **options):
    return list(train_batches(dataset, recipe, PREPROCESS, image_size=(21, 15), **options))


def test_a_batch_is_a_function_of_seed_and_step(dataset):
    whole = _batches(dataset, EVERYTHING, num_threads=0)
    later = _batches(dataset, EVERYTHING, num_threads=2, start_step=3)
    for one, other in zip(whole[3:], later, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
        np.testing.assert_array_equal(one["label"], other["label"])
    assert whole[0]["label"].shape == (6, dataset.num_classes)
    np.testing.assert_allclose(whole[0]["label"].sum(-1), 1, atol=1e-6)


def test_repeats_are_deits(dataset):
    """DeiT's RASampler without its shuffle, `samplers.py`: views are dealt to processes in turn, so that
    a batch of all processes together holds neighbours."""
    count, repeats, ranks, batch = len(dataset.train), 3, 2, 6

    def of_rank(rank):
        indices = torch.repeat_interleave(torch.arange(count), repeats).tolist()
        total = -(-count * repeats // ranks) * ranks
        indices += indices[: total - len(indices)]
        return indices[rank:total:ranks]

    dealt = [of_rank(rank) for rank in range(ranks)]
    for step in range(count // batch):
        part = slice(step * batch // ranks, (step + 1) * batch // ranks)
        theirs = sorted(index for each in dealt for index in each[part])
        ours = [place // repeats for place in range(step * batch, (step + 1) * batch)]
        assert theirs == ours


def test_views_of_one_image_are_neighbours_and_differ(dataset):
    recipe = EVERYTHING.replace(mix=Mix(), augment=EVERYTHING.augment.replace(erase=0.0))
    [first, *_] = _batches(dataset, recipe, num_threads=0)
    labels = first["label"].reshape(2, 3)
    assert (labels == labels[:, :1]).all()
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(first["image"][one] - first["image"][other]).max() > 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"policy": "timm"}, "augment.policy = 'timm'"), ({"color_jitter": 0.3}, "augment.color_jitter")],
)
def test_colours_of_grey_images_are_refused(changes, words):
    grey = Preprocess(mean=(0.5,), std=(0.5,))
    with pytest.raises(DataError, match="1 channels") as caught:
        Views(Augment(**changes), (21, 15), grey)
    assert words in str(caught.value)
