"""A run that starts from weights, and is given no recipe, fine-tunes as the field does."""

import pytest

from parity.cli.support.base_recipe import PUBLISHED, about_images
from parity.cli.support.job_file import base_job, tunes
from vit_config import Preprocess, Recipe, preset
from vit_config.fine_tuning import TrainingSet, fine_tuning, summary, without
from vit_config.job import Job
from vit_train.data.digits import NUM_TRAIN
from vit_train.folder.start import Start
from vit_train.task import _unknown_pixels


@pytest.mark.parametrize(
    ("images", "epochs", "batch"),
    [
        (3, 100, 1),
        (90, 100, 22),
        (400, 84, 32),  # of 12 steps
        (1_000, 33, 32),
        (1_001, 67, 64),
        (10_000, 20, 64),
        (10**6, 10, 128),
        (None, 10, 128),
    ],
)
def test_the_number_of_images_sizes_the_recipe(images, epochs, batch):
    recipe = fine_tuning(TrainingSet(images))
    assert (recipe.epochs, recipe.batch_size) == (epochs, batch)
    assert recipe.warmup == pytest.approx(epochs / 10)
    assert recipe.layer_decay < 1
    assert recipe.augment.flip
    assert recipe.label_smoothing
    assert recipe.weight_decay


def test_the_learning_rate_follows_the_batch_of_the_user():
    usual, larger = fine_tuning(TrainingSet(300)), fine_tuning(TrainingSet(300), 128)
    assert (larger.batch_size, larger.learning_rate) == (128, 2 * usual.learning_rate)
    assert fine_tuning(TrainingSet(300), "many") == fine_tuning(TrainingSet(300), 0) == usual


@pytest.mark.parametrize(
    ("names", "what", "why"),
    [
        (tuple("0123456789"), "crops and flips", "called like written characters: 0, 1, 2, ..."),
        (tuple("01234"), "", ""),  # grades
        (("go", "turn_left"), "flips", "a class is called turn_left"),
        (("bright", "theft", "cleft"), "", ""),
        (None, "", ""),
    ],
)
def test_no_image_is_turned_into_one_of_another_class(names, what, why):
    change, because = without(names)
    assert (change, because.endswith(why), bool(because)) == (what, True, bool(why))
    augment = fine_tuning(TrainingSet(300, names)).augment
    assert (augment.crop == "none", augment.flip) == ("crops" in what, "flips" not in what)


def test_it_is_the_default_of_init_and_of_nothing_else(tmp_path):
    assert tunes("vit_tiny_patch16_224", None, "w.safetensors")
    assert not tunes("vit_tiny_patch16_224", None, None)
    assert not tunes("digits", None, "w.safetensors")
    recipe = fine_tuning(TrainingSet(300))
    job = base_job("vit_tiny_patch16_224", None, "w.safetensors", tuned=recipe)
    assert (job.recipe, job.model) == (recipe, preset("vit_tiny_patch16_224"))
    config = tmp_path / "own.toml"
    config.write_text('preset = "vit_tiny_patch16_224"\n[recipe]\nepochs = 3\n')
    assert not tunes(None, config, "w.safetensors")
    assert base_job(None, config, "w.safetensors").recipe == Recipe(epochs=3)


def test_images_are_counted_where_the_set_is_there(tmp_path):
    for number in range(12):
        path = tmp_path / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not looked into")
    held = about_images(["--data", f"folder:{tmp_path}"])
    assert held.count in range(8, 13)
    assert (held.class_names, held.classes) == (("a", "b"), 2)
    assert about_images(["--data=folder:nowhere"]) == TrainingSet()
    numerals = tuple("0123456789")
    mnist = about_images(["--data", "tfds:mnist", "--data-dir", str(tmp_path)])
    assert mnist[:2] == (60_000, numerals)
    assert about_images([])[:2] == (PUBLISHED["digits"], numerals) == (NUM_TRAIN, numerals)


def test_each_choice_is_told_with_the_flag_that_changes_it():
    images = TrainingSet(300, ("left", "up"))
    head, *lines = summary(fine_tuning(images).replace(warmup_fraction=0.2), images, {"warmup_fraction"})
    assert head.startswith("fine-tuning recipe for 300 images; ")
    said = {line[2:17].strip(): line[17:].split() for line in lines}
    assert said["epochs"] == ["100", "--recipe.epochs"]
    assert said["learning rate"] == ["0.0003", "at", "most", "--recipe.learning-rate"]
    assert said["warm-up"] == ["20%", "of", "the", "run", "(given)", "--recipe.warmup-fraction"]
    assert said["crops"] == ["35%", "to", "100%", "of", "the", "image", "--recipe.augment.crop"]
    assert said["flips"] == ["no", "--recipe.augment.flip"]
    assert lines[-1] == "  no flips by default, because a class is called left"


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
