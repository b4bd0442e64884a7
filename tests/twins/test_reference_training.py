"""The models that this project rebuilds train in both twins as their own PyTorch code does."""

from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from evidence.originals.ours import JaxSide, TorchSide
from evidence.originals.side import Case
from parity.cli.support.job_file import base_job
from tests.support.originals import ORIGINALS, train
from tests.support.peers import EXACT, nchw, random_images
from tests.support.tiny import error

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = {
    "mnist_exercise": "mnist_exercise",
    "mnist_conv_vit": "mnist_conv_vit",
    "vit_paper": "mnist_paper",
}
UNEVEN = {
    "image_size": (21, 15), "patch_size": (7, 5), "in_channels": 3, "hidden_size": 30, "depth": 2,
    "num_heads": 5, "mlp_dim": 44, "num_classes": 11, "dropout_embed": 0.0, "dropout_mlp_inner": 0.0,
    "dropout_mlp_outer": 0.0,
}  # fmt: skip
STEPS = 4


@pytest.mark.parametrize("preset", ORIGINALS)
def test_steps_are_those_of_the_original(preset):
    job = base_job(None, FOLDER / f"{RECIPES[preset]}.toml")
    cfg, recipe = job.model.replace(**UNEVEN), job.recipe.replace(dtype="float64")
    torch.manual_seed(0)
    original = ORIGINALS[preset](cfg).double()
    start = original.common()
    assert all(np.isfinite(value).all() for value in start.values())
    rng = np.random.default_rng(1)
    batches = [(random_images(cfg, 6, seed), rng.integers(0, 11, 6)) for seed in range(STEPS)]
    adam = torch.optim.Adam(
        original.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    losses = [*train(original, adam, ((nchw(x), torch.tensor(y)) for x, y in batches))]
    case = Case(preset, cfg, recipe, STEPS, STEPS, start)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        for side in (JaxSide(case), TorchSide(case)):
            ours = [side.step(x, y, rng) for x, y in batches]
            assert error(np.array(ours), np.array(losses)) <= EXACT
            params = side.params()
            for name, value in original.common().items():
                if not name.endswith("qkv.bias"):  # of the keys, whose gradient is round-off
                    assert error(params[name], value) <= 1e-9, name
                    assert np.abs(value - start[name]).max() > 1e-4  # nothing is equal by standing still


def test_another_recipe_is_noticed():
    job = base_job(None, FOLDER / "mnist_paper.toml")
    cfg = job.model.replace(**UNEVEN)
    recipe = job.recipe.replace(dtype="float64", decay="matrices")  # torch's Adam decays everything
    torch.manual_seed(0)
    original = ORIGINALS["vit_paper"](cfg).double()
    case = Case("vit_paper", cfg, recipe, STEPS, STEPS, original.common())
    batches = [(random_images(cfg, 6, seed), np.arange(6)) for seed in range(STEPS)]
    adam = torch.optim.Adam(original.parameters(), lr=recipe.learning_rate, weight_decay=0.1)
    losses = [*train(original, adam, ((nchw(x), torch.tensor(y)) for x, y in batches))]
    side = TorchSide(case)
    ours = [side.step(x, y, np.random.default_rng()) for x, y in batches]
    assert ours[0] == pytest.approx(losses[0], rel=EXACT)
    assert error(np.array(ours), np.array(losses)) > 1e-6
