"""A dry run builds all, takes two steps, and leaves nothing."""

import re

import pytest

from parity.cli import run
from vit_config import preset
from vit_config.adapters import draw_adapters
from vit_config.costs import costs
from vit_config.lora import Lora

CFG = preset("digits").replace(depth=1)
MOMENTS_AND_EMA = 4  # parameters, two moments, the average


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_it_says_what_a_run_will_cost(capsys, tmp_path, framework):
    flags = [
        *(
            "--framework",
            framework,
            "--data-dir",
            str(tmp_path / "data"),
            "--run-dir",
            str(tmp_path / "run"),
        ),
        *(
            "--model.depth",
            "1",
            "--recipe.ema",
            "0.9",
            "--recipe.epochs",
            "3",
            "--recipe.warmup-epochs",
            "0",
        ),
    ]
    assert run("train", [*flags, "--freeze", "patch_embed", "--dry-run"]) == 0
    out = capsys.readouterr().out
    count = costs(CFG).parameters
    frozen = CFG.hidden_size * (CFG.patch_dim + 1)
    assert f"model   {count:,} parameters, {count - frozen:,} of them trained; " in out
    assert f"FLOPs {costs(CFG).flops / 1e9:.3g} G forward for an image" in out
    mib = float(re.search(r"memory  ([\d.]+) MiB", out)[1])
    held = MOMENTS_AND_EMA * count
    if framework == "torch":  # keeps no moments of what is frozen
        held -= 2 * frozen
    assert mib == pytest.approx(held * 4 / 2**20, abs=0.06)
    assert "steps   84: 3 epochs of 28, batches of 32, 898 examples; 0:" in out
    assert re.search(r"speed   [\d.e-]+ s a step, [\d,]+ images/s, the data not counted", out)
    assert not (tmp_path / "run").exists()


def test_data_need_not_be_here(capsys, tmp_path):
    flags = ["--framework", "torch", "--data", "tfds:nothing", "--data-dir", str(tmp_path), "--dry-run"]
    assert run("train", [*flags, "--model.depth", "1", "--lora-rank", "2"]) == 0
    out = capsys.readouterr().out
    assert "steps   unknown: tfds:nothing: not prepared in" in out
    adapters = sum(each.size for each in draw_adapters(Lora(rank=2), CFG, 0).values())
    assert f"model   {costs(CFG).parameters + adapters:,} parameters, " in out


def test_a_batch_that_does_not_fit_is_tried_in_small(capsys, tmp_path):
    flags = ["--framework", "torch", "--data", "tfds:mnist", "--data-dir", str(tmp_path), "--dry-run"]
    tried = ["--model.depth", "1", "--recipe.epochs", "2", "--recipe.batch-size", "1000"]
    held = ["--recipe.validation-fraction", "0.1", "--recipe.warmup-epochs", "0"]
    assert run("train", [*flags, *tried, *held, "--dry-run-batch", "2"]) == 0
    out = capsys.readouterr().out
    assert " s a step of 2 images, " in out
    assert "steps   108: 2 epochs of 54, batches of 1000, 54,000 examples, as published: the set " in out
    assert run("train", ["--dry-run-batch", "2"]) == 2
    assert "--dry-run-batch 2: goes with --dry-run, and is 1 image or more" in capsys.readouterr().err
