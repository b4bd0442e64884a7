"""A change of a recipe wins over what the recipe said of the same, and over what it leaves idle."""

import pytest

from parity.cli.support.base_recipe import about_images, given_flags, giving_way
from parity.cli.support.job_file import base_job
from vit_config import Augment, Recipe
from vit_config.fine_tuning import TrainingSet, fine_tuning

pytestmark = pytest.mark.quick

LONG = Recipe(epochs=100, warmup_epochs=10.0, warmup_start=0.0)


def changed(recipe, **given):
    """The recipe that flags end with: they change what `giving_way` returns."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    base = giving_way(recipe, named)
    augment = {n.removeprefix("augment."): v for n, v in named.items() if n.startswith("augment.")}
    own = {name: value for name, value in named.items() if "." not in name}
    return base.replace(augment=base.augment.replace(**augment), **own)


def test_flags_are_read_as_numbers_words_and_nothing():
    words = "--recipe.epochs=3 --recipe.clip_norm None --recipe.optimizer sgd --recipe.augment.no-flip"
    given = given_flags(["--recipe.epochs", "2", *words.split(), "--recipe.warmup-fraction", "1e-1"])
    assert given.pop("augment.flip") != "no value of its own"
    assert given == {"epochs": 3, "clip_norm": None, "optimizer": "sgd", "warmup_fraction": 0.1}


def test_either_way_to_state_the_warm_up_replaces_the_other():
    assert changed(LONG, warmup_fraction=0.25).warmup == 25
    assert changed(LONG, warmup_fraction=0.25).warmup_start == 0.0
    none = changed(LONG, warmup_fraction=0)
    assert (none.warmup, none.warmup_start) == (0, None)
    tuned = fine_tuning(TrainingSet(300))
    assert changed(tuned, warmup_epochs=2.0).warmup == 2
    assert giving_way(LONG, {"warmup_epochs": 1.0, "warmup_fraction": 0.1}) == LONG  # refused later


def test_what_has_no_effect_beside_a_change_falls_away():
    tuned = fine_tuning(TrainingSet(300))
    assert changed(tuned, augment__crop="none").augment == Augment(flip=True)
    assert changed(tuned, augment__crop="random", augment__crop_resize=40).augment.crop_resize == 40
    assert changed(tuned, augment__crop="tensorflow").augment.crop_area == (0.35, 1.0)
    momentum = changed(Recipe(beta2=0.99, weight_decay=0.1, decay_times="schedule"), optimizer="sgd")
    assert (momentum.beta2, momentum.decay_times) == (Recipe().beta2, "learning_rate")
    assert changed(Recipe(ema=0.9, ema_warmup=True), ema=None) == Recipe()
    assert giving_way(tuned, {"augment.flip": "", "seed": 3}) == tuned


def test_a_shorter_run_has_a_warm_up_that_fits_and_says_so(tmp_path):
    said = []
    assert giving_way(LONG, {"epochs": 4}, said.append).warmup == pytest.approx(0.4)
    assert said == [
        "warm-up: 0.4 of 4 epochs, the recipe's share, as its 10 do not fit; --recipe.warmup-fraction"
        " sets another"
    ]
    assert giving_way(LONG, {"epochs": 20}, said.append) == LONG
    file = tmp_path / "short.toml"
    file.write_text('preset = "digits"\n[recipe]\nepochs = 3\n')
    assert base_job(None, file, say=said.append).recipe.warmup == pytest.approx(0.15)
    assert len(said) == 2


def test_of_the_digits_the_number_is_known_before_they_are_prepared():
    from vit_train.data.digits import NUM_TRAIN  # imports tensorflow-datasets

    assert about_images([])[0] == NUM_TRAIN
