"""The recipes shipped: each is understood, says what to expect, and is what its original says."""

import re
from pathlib import Path

import pytest

from parity.cli.support.train_options import parse
from parity.porting.reading.libraries.peers import import_timm
from vit_config import ConfigError, preset
from vit_config.base import Schema
from vit_config.job import RECIPES
from vit_config.schedule import learning_rate

ROOT = Path(__file__).parents[3]
PATHS = sorted((ROOT / "recipes").glob("*.toml"))
SAID = ("Command", "Hardware", "Time", "Accuracy", "Numbers")


def job(name):
    """What `train.py --config` makes of a recipe."""
    return parse(["--config", str(ROOT / "recipes" / f"{name}.toml")], prog="train.py").job


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_is_understood_and_says_what_to_expect(path):
    assert job(path.stem).model.num_classes > 0
    head = path.read_text().partition("\npreset")[0]
    assert all(line.startswith("#") for line in head.strip().splitlines())
    for word in SAID:
        assert re.search(rf"^# {word} +\S", head, re.MULTILINE), f"{path.name} does not say {word}"
    assert f"recipes/{path.name}" in head


def test_the_recipes_of_the_field_are_there():
    names = {path.stem for path in PATHS}
    assert names >= {
        "vit_s16_i1k", "augreg_b32_i1k", "augreg_b16_cifar10", "deit_s", "deit3_s", "mae_b16_finetune",
        "cifar10", "digits", "linear_probe", "mnist_exercise", "mnist_conv_vit", "mnist_paper",
    }  # fmt: skip
    assert set(ROOT.glob("recipes/*")) == set(PATHS)


def test_the_digits_are_what_the_command_does_without_flags():
    assert job("digits").recipe == RECIPES["digits"]
    assert job("digits") == parse([], prog="train.py").job


def test_the_exercise():
    recipe = job("mnist_exercise").recipe
    assert (job("mnist_exercise").model, job("mnist_exercise").data) == (
        preset("mnist_exercise"),
        "tfds:mnist",
    )
    assert (recipe.optimizer, recipe.learning_rate, recipe.schedule) == ("adam", 0.005, "constant")
    assert (recipe.epochs, recipe.batch_size, recipe.weight_decay) == (20, 128, 0.0)
    assert (recipe.watch_test, recipe.eval_every_epochs) == (True, 1)


@pytest.mark.parametrize(
    ("name", "per_epoch", "warmup", "total"),
    [
        ("vit_s16_i1k", 1238, 10_000, 111_420),
        ("augreg_b32_i1k", 2477, 500, 19_816),
        ("augreg_b16_cifar10", 95, 500, 9_975),
        ("mae_b16_finetune", 1251, 6_255, 125_100),
    ],
)
def test_steps_are_those_that_the_head_says(name, per_epoch, warmup, total):
    """The peak is reached one step after the warm-up, and what its head says of steps is so."""
    recipe = job(name).recipe
    assert recipe.epochs * per_epoch == total
    assert learning_rate(recipe, warmup, per_epoch) == recipe.learning_rate
    assert learning_rate(recipe, warmup - 1, per_epoch) < recipe.learning_rate


def test_deits_schedule_is_timms():
    import_timm()
    import torch
    from timm.scheduler import create_scheduler_v2

    for name in ("deit_s", "deit3_s"):
        recipe = job(name).recipe
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=recipe.learning_rate)
        scheduler, _ = create_scheduler_v2(
            optimizer,
            "cosine",
            num_epochs=recipe.epochs,
            warmup_epochs=5,
            warmup_lr=1e-6,
            min_lr=1e-5,
        )
        for epoch in range(recipe.epochs):
            scheduler.step(epoch)
            expected = optimizer.param_groups[0]["lr"]
            assert learning_rate(recipe, 7 * epoch + 3, 7) == pytest.approx(expected, rel=1e-12)


def test_a_toml_file_that_is_not_one(tmp_path):
    class Any(Schema, frozen=True):
        number: int = 0

    path = tmp_path / "a.toml"
    for text, words in (
        ("number = ", "not valid TOML"),
        ("number = 1\nnumber = 2", "not valid TOML"),
        ("nummer = 1", "did you mean 'number'?"),
        ('number = "1"', "valid integer"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            Any.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert words in str(caught.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not text"):
        Any.load(path)
    path.write_text("# nothing but a default\n")
    assert Any.load(path).number == 0
