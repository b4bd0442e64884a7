"""A run that starts from weights, and is given no recipe, fine-tunes as the field does."""

import pytest

from parity.cli.support.job_file import base_job
from parity.cli.support.train_data import PUBLISHED, count_images
from vit_config import Preprocess, Recipe, preset
from vit_config.fine_tuning import fine_tuning, told
from vit_config.job import Job
from vit_train.digits import NUM_TRAIN
from vit_train.start import Start
from vit_train.task import _unknown_pixels


@pytest.mark.parametrize(
    ("images", "epochs", "batch"),
    [
        (3, 30, 1),
        (90, 30, 22),
        (300, 30, 32),
        (1_000, 30, 32),
        (1_001, 20, 64),
        (10**6, 10, 128),
        (None, 10, 128),
    ],
)
def test_the_number_of_images_sizes_the_recipe(images, epochs, batch):
    recipe = fine_tuning(images)
    assert (recipe.epochs, recipe.batch_size) == (epochs, batch)
    assert recipe.warmup == pytest.approx(epochs / 10)
    assert recipe.layer_decay < 1
    assert recipe.augment.flip
    assert recipe.label_smoothing
    assert recipe.weight_decay


def test_it_is_the_default_of_init_and_of_nothing_else(tmp_path):
    tuned = base_job("vit_tiny_patch16_224", None, "w.safetensors", images=lambda: 300)
    assert (tuned.recipe, tuned.model) == (fine_tuning(300), preset("vit_tiny_patch16_224"))
    assert base_job("vit_tiny_patch16_224", None).recipe == Recipe()
    assert base_job("digits", None, "w.safetensors").recipe == base_job("digits", None).recipe
    config = tmp_path / "own.toml"
    config.write_text('preset = "vit_tiny_patch16_224"\n[recipe]\nepochs = 3\n')
    assert base_job(None, config, "w.safetensors").recipe == Recipe(epochs=3)


def test_images_are_counted_where_the_set_is_there(tmp_path):
    for number in range(12):
        path = tmp_path / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not looked into")
    held = count_images(["--data", f"folder:{tmp_path}"])
    assert held in range(8, 13)
    assert count_images(["--data=folder:nowhere"]) is None
    assert count_images(["--data", "tfds:mnist", "--data-dir", str(tmp_path)]) == 60_000
    assert count_images([]) == PUBLISHED["digits"] == NUM_TRAIN


def test_what_it_does_is_told_in_one_line():
    said = told(fine_tuning(300))
    for word in (
        "adamw at 0.0003",
        "layer decay 0.75",
        "30 epochs of batches of 32",
        "10% warm-up",
        "flips",
    ):
        assert word in said
    assert "\n" not in said


def test_weights_without_a_preprocessing_say_whose_mean_is_taken():
    pixels = Preprocess(mean=(0.25,), std=(0.5,))
    start = Start("w.safetensors", "0", None, False, {}, None, ())
    job = Job(preset("digits"), Recipe())
    (said,) = _unknown_pixels(start, job, pixels)
    assert "w.safetensors does not say how" in said
    assert "mean (0.250)" in said
    assert _unknown_pixels(None, job, pixels) == ()
    known = Start("w.safetensors", "0", None, False, {}, pixels, ())
    assert _unknown_pixels(known, job, pixels) == ()
    assert _unknown_pixels(start, Job(job.model, Recipe(pixels="half")), pixels) == ()
