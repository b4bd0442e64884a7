"""Every number of every optimiser survives the way to the other framework and back."""

from itertools import product

import numpy as np
import pytest

from parity.runs.folder import differing, read_run, saved_steps
from parity.runs.state import moments_of
from tests.support.moved_runs import CFG, RECIPE, digests, listing, move, random_run, write_random
from vit_config.parameters import parameters
from vit_train.conduct import check_framework

OPTIMIZERS = {
    "adamw": {},
    "adam": {"optimizer": "adam", "weight_decay": 0.0},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
    "plain_sgd": {"optimizer": "sgd", "momentum": 0.0},
}
KEPT = {
    "adamw": ("exp_avg", "exp_avg_sq"),
    "adam": ("exp_avg", "exp_avg_sq"),
    "sgd": ("momentum_buffer",),
    "plain_sgd": (),
}
TO = {"jax": "torch", "torch": "jax"}


ALWAYS = {
    ("adamw", "float32", "jax"), ("adam", "float64", "torch"), ("sgd", "bfloat16", "torch"),
    ("plain_sgd", "float32", "jax"),
}  # fmt: skip
"""Each rule, each type and each way; a share of the rest."""


def _ways():
    for way in product(OPTIMIZERS, ("float32", "float64", "bfloat16"), TO):
        yield pytest.param(*way, marks=[] if way in ALWAYS else pytest.mark.exhaustive)


@pytest.mark.parametrize(("optimizer", "dtype", "first"), [*_ways()])
def test_there_and_back(optimizer, dtype, first, tmp_path):
    """The digests that the trainers' own checkpoints have of every tensor."""
    ema = 0.9 if optimizer in ("adamw", "sgd") else None
    recipe = RECIPE.replace(**OPTIMIZERS[optimizer], dtype=dtype, ema=ema)
    assert moments_of(recipe) == KEPT[optimizer]
    given = write_random(tmp_path / "given", first, recipe)
    there = move(given, tmp_path / "there", TO[first])
    back = move(there, tmp_path / "back", first)
    assert digests(back, 7) == digests(given, 7)
    parts = 1 + len(KEPT[optimizer]) + (0 if ema is None else 1)
    assert len(digests(back, 7)) >= parts * len(parameters(CFG))
    for folder in (given, there, back):
        assert differing(read_run(folder).state, random_run(recipe, 7).state) == []
    check_framework(there, TO[first])


@pytest.mark.parametrize(("optimizer", "first"), [("adamw", "jax"), ("sgd", "torch")])
def test_the_initial_state(optimizer, first, tmp_path):
    """torch has no moments before the first update, optax has zeros."""
    recipe = RECIPE.replace(**OPTIMIZERS[optimizer])
    given = write_random(tmp_path / "given", first, recipe, step=0)
    there = move(given, tmp_path / "there", TO[first])
    back = move(there, tmp_path / "back", first)
    assert digests(back, 0) == digests(given, 0)
    names = [name for name in digests(given if first == "torch" else there, 0) if "optimizer" in name]
    assert names == []
    state = read_run(there).state
    assert all(not value.any() for part in state.moments.values() for value in part.values())
    assert list(state.moments) == list(KEPT[optimizer])


def test_what_differs_is_seen():
    a, b = random_run(RECIPE, 7).state, random_run(RECIPE, 7).state
    assert differing(a, b) == []
    bias = b.moments["exp_avg"]["head.bias"]
    bias[1] = np.nextafter(bias[1], 1)
    b.ema["head.bias"][0] *= -1
    assert differing(a, b) == ["exp_avg head.bias", "ema head.bias"]
    assert differing(a, a.astype("float32"))[0].startswith("parameters ")
    assert differing(a, random_run(RECIPE, 8).state)[0] == "step 7 and 8"


@pytest.mark.parametrize("framework", TO)
def test_reading_changes_nothing(framework, tmp_path):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    before = listing(folder)
    read_run(folder)
    assert saved_steps(folder) == [7]
    assert listing(folder) == before
