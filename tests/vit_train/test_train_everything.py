"""Runs with every change to images, mixed labels, an average that warms up and batches in parts:
interrupted or not, they are the same, bit for bit, in both frameworks; in JAX images change on the
devices."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from rich.console import Console

import vit_jax.train.run
import vit_torch.train.run
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.tiny import TINY
from vit_config import Augment, ConfigError, Mix, Recipe
from vit_config.job import Job

RECIPE = Recipe(
    epochs=2,
    batch_size=4,
    accumulate=2,
    optimizer="lamb",
    weight_decay=0.05,
    layer_decay=0.7,
    ema=0.9,
    ema_warmup=True,
    loss="sigmoid_mean",
    class_weights=(0.5, 2.0, 1.0),
    sampling="balanced",
    label_threshold=0.0,
    pixels="half",
    augment=Augment(
        crop="torchvision", flip=True, policy="timm", color_jitter=0.3, erase=0.5, repeats=2
    ),
    mix=Mix(mixup=0.8, cutmix=1.0),
)
CHANGED_ON_DEVICES = RECIPE.replace(device_side=24, augment=RECIPE.augment.replace(policy="none"))
JOB = Job(TINY.replace(depth=1, num_classes=3, dropout_embed=0.1), RECIPE, "tfds:tiny_rectangles")
QUIET = Console(quiet=True)


@pytest.mark.parametrize("module", [vit_jax.train.run, vit_torch.train.run], ids=["jax", "torch"])
def test_interrupted_is_uninterrupted(module, data_dir, tmp_path):
    options, job = {"data_dir": data_dir, "console": QUIET}, JOB
    if module is vit_jax.train.run:
        options["devices"], job = tuple(jax.local_devices()[:1]), replace(JOB, recipe=CHANGED_ON_DEVICES)
    whole = module.train(job, run_dir=tmp_path / "whole", **options)
    for stop in (1, 3, None):
        broken = module.train(job, run_dir=tmp_path / "broken", stop_after=stop, **options)
    assert broken.step == whole.step
    assert whole.params.keys() == broken.params.keys()
    for name, value in whole.params.items():
        np.testing.assert_array_equal(value, broken.params[name])


def test_distillation_without_a_teacher_is_refused(data_dir, tmp_path):
    cfg = JOB.model.replace(distill_token=True)
    job = Job(cfg, Recipe(epochs=1, batch_size=4, distill="hard"), JOB.data)
    with pytest.raises(ConfigError, match='distill = "hard" needs a teacher; add --teacher FILE'):
        vit_jax.train.run.train(job, data_dir=data_dir, run_dir=tmp_path, console=QUIET)
