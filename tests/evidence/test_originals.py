"""Recipes are those they are named after, and a recipe that is not is noticed."""

from pathlib import Path

import pytest

from evidence.originals.__main__ import main
from evidence.originals.check import ORIGINALS, check_recipe
from evidence.originals.timm import Timm
from parity.cli.support.job_file import base_job
from tests.support.refusals import one_line
from tests.support.share import rarely
from vit_config import ConfigError

RECIPES = Path(__file__).parents[2] / "recipes"


def job(name):
    return base_job(None, RECIPES / f"{name}.toml")


@pytest.mark.parametrize(
    "name", rarely(("vit_s16_i1k", "deit3_s", "mae_b16_finetune"), ("vit_s16_i1k",))
)
def test_a_recipe_is_its_original(name):
    rows = check_recipe(name, job(name))
    assert [row.twin for row in rows] == ["JAX", "PyTorch"]
    for row in rows:
        assert row.passed, row
        assert row.moved > 1e-3  # nothing is equal by standing still


@pytest.mark.parametrize(
    "changes",
    [{"label_smoothing": 0.11}, {"decay": "not_vectors"}],
    ids=["smoothing", "decay"],
)
def test_another_recipe_is_not(changes, monkeypatch):
    """The original is told the recipe as shipped, the twins another one."""
    shipped = job("deit_s")
    changed = type(shipped)(shipped.model, shipped.recipe.replace(**changes), shipped.data)

    def unchanged(case):
        usual = {name: getattr(shipped.recipe, name) for name in changes}
        return Timm(case._replace(recipe=case.recipe.replace(**usual)))

    monkeypatch.setitem(ORIGINALS, "deit_s", ORIGINALS["deit_s"]._replace(make=unchanged, pixels=None))
    assert not any(row.passed for row in check_recipe("deit_s", changed))


def test_a_recipe_without_an_original_is_refused(capsys):
    with pytest.raises(ConfigError) as caught:
        check_recipe("digits", job("digits"))
    one_line(caught.value, "digits", "vit_s16_i1k")
    assert main(["digits"]) == 2
    assert (
        "digits: has no original to be compared with; these have: vit_s16_i1k" in capsys.readouterr().err
    )
    assert main(["deit_s", "--steps", "3"]) == 2
    assert "--steps" in capsys.readouterr().err
