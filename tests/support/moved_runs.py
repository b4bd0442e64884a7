"""Tiny training runs that move between the frameworks."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np
import torch

from parity.runs.folder import read_manifest, read_run, write_run
from parity.runs.run import Run
from parity.runs.state import TrainingState, moments_of
from tests.support.tiny import TINY
from vit_config import Recipe, ViTConfig
from vit_config.job import Job
from vit_config.parameters import parameters
from vit_jax.train.run import train as train_in_jax
from vit_torch.train.run import train as train_in_torch
from vit_train.folder.manifest import make_manifest

CFG = TINY.replace(depth=1, num_classes=3)
RECIPE = Recipe.from_json("""{
    "epochs": 3, "batch_size": 8, "learning_rate": 0.003, "weight_decay": 0.05, "warmup_epochs": 1,
    "log_every_steps": 1, "checkpoint_every_epochs": 1, "accumulate": 2, "ema": 0.9, "dtype": "float64",
    "augment": {"shift": 0.1, "rotate": 5.0, "flip": true}
}""")
JOB = Job(CFG, RECIPE, "tfds:tiny_rectangles")
STEPS_PER_EPOCH, STEPS = 5, 15  # 47 images in batches of 8


def train(framework, job, data_dir, run_dir, stop_after):
    """Train to that step, or go on to it."""
    if framework == "torch":
        return train_in_torch(job, data_dir=data_dir, run_dir=run_dir, stop_after=stop_after)
    one = tuple(jax.local_devices()[:1])  # quicker to compile for than eight
    return train_in_jax(job, data_dir=data_dir, run_dir=run_dir, stop_after=stop_after, devices=one)


def move(source, out, to, **options):
    """As ``parity convert-run``."""
    run = read_run(source)
    write_run(run, out, to, read_manifest(source), log=source, **options)
    return out


def random_run(recipe: Recipe, step: int, cfg: ViTConfig = CFG) -> Run:
    """A run in the middle, every number drawn."""
    rng = np.random.default_rng(step)
    dtype = "float64" if recipe.dtype == "float64" else "float32"

    def draw(positive=False):
        drawn = {n: rng.standard_normal(each.shape).astype(dtype) for n, each in parameters(cfg).items()}
        return {name: np.abs(value) for name, value in drawn.items()} if positive else drawn

    def moment(name):
        blank = {each: np.zeros(shape.shape, dtype) for each, shape in parameters(cfg).items()}
        return draw(name == "exp_avg_sq") if step else blank

    state = TrainingState(
        step, draw(), {name: moment(name) for name in moments_of(recipe)}, draw() if recipe.ema else None
    )
    return Run(cfg, recipe, state, STEPS_PER_EPOCH, JOB.data, "fingerprint")


def write_random(
    folder: Path, framework, recipe: Recipe, step: int = 7, cfg: ViTConfig = CFG, data="fingerprint"
) -> Path:
    """A run folder with one such checkpoint: a copy of the first that was written so."""
    run_id = make_manifest(Job(cfg, recipe, JOB.data), data).run_id
    return shutil.copytree(_written(framework, recipe, step, cfg, data, run_id), folder)


@cache
def _written(framework, recipe: Recipe, step: int, cfg: ViTConfig, data, run_id) -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    manifest = make_manifest(Job(cfg, recipe, JOB.data), data)
    assert manifest.run_id == run_id
    write_run(random_run(recipe, step, cfg), folder / "run", framework, manifest)
    return folder / "run"


def digests(folder: Path, step: int) -> dict:
    """What a checkpoint itself says of every tensor in it."""
    path = folder / "checkpoints" / str(step)
    if path.is_dir():
        return json.loads((path / "meta" / "metadata").read_text())["tensors"]
    return torch.load(path.with_name(f"{step}.pt"), weights_only=True)["digests"]


def listing(folder: Path) -> dict:
    """Everything in a folder, with when it was changed last."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }
