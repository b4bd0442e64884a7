"""Choose the recipe of the `digits` preset by cross-validation inside the training half.

The 898 training images are cut into three contiguous folds: the writers stand in order, so a fold is
written by other people than those it is tested by, as the test half is. The test half is never
opened. Each candidate is the best so far with a few fields drawn anew, until the time is up; then the
best ones are trained again from other seeds, and the mean over folds and seeds decides.

    python tools/tune_digits.py --minutes 40 --out tuning.json
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from vit_config import Augment, Preprocess, Recipe, ViTConfig, preset
from vit_jax.train.sharding import make_program
from vit_train.data import eval_batches, train_batches
from vit_train.dataset import ImageDataset
from vit_train.digits import NUM_TRAIN
from vit_train.loop import AfterEvaluation, Hooks, evaluate, run_steps
from vit_train.profiling import Profile
from vit_train.records import Records
from vit_train.statistics import channel_statistics

FOLDS = 3
FINALISTS, FINAL_SEEDS = 3, (1, 2)

Candidate = dict[str, Any]

SPACE: dict[str, list[Any]] = {
    "model.patch_size": [(8, 1), (8, 2), (4, 4)],
    "model.hidden_size": [64, 96],
    "model.depth": [3, 4, 6],
    "model.pool": ["class", "mean"],
    "model.dropout_mlp_inner": [0.0, 0.1],
    "recipe.epochs": [100, 200],
    "recipe.batch_size": [32, 64],
    "recipe.learning_rate": [5e-4, 1e-3, 2e-3],
    "recipe.weight_decay": [0.02, 0.1, 0.5],
    "recipe.label_smoothing": [0.0, 0.1],
    "augment.shift": [0.05, 0.1],
    "augment.rotate": [5.0, 10.0],
    "augment.scale": [0.05, 0.1, 0.15],
}
"""Values that are tried, field by field."""

START: Candidate = {
    "model.patch_size": (8, 2),
    "model.hidden_size": 64,
    "model.depth": 4,
    "model.pool": "class",
    "model.dropout_mlp_inner": 0.0,
    "recipe.epochs": 100,
    "recipe.batch_size": 32,
    "recipe.learning_rate": 1e-3,
    "recipe.weight_decay": 0.1,
    "recipe.label_smoothing": 0.1,
    "augment.shift": 0.1,
    "augment.rotate": 10.0,
    "augment.scale": 0.1,
}
"""Start of the search."""
REDRAWN = 0.2
"""Probability that a field is drawn anew."""


@dataclass(frozen=True)
class Options:
    """Choose the recipe of the digits preset by cross-validation inside the training half."""

    minutes: float = 40.0
    """Time for the random search; the finalists come on top."""
    seed: int = 0
    """Seed of the search."""
    max_teraflop: float = 0.8
    """Candidates with more work than this in one run on the whole half are left out; a core of 2020
    does about 0.01 a second."""
    out: Path | None = None
    """File for every result, as JSON."""


def neighbour(candidate: Candidate, rng: random.Random) -> Candidate:
    """The candidate with a few fields drawn anew."""
    return {
        name: rng.choice(SPACE[name]) if rng.random() < REDRAWN else value
        for name, value in candidate.items()
    }


def schemas(candidate: Candidate, seed: int) -> tuple[ViTConfig, Recipe]:
    parts: dict[str, dict[str, Any]] = {"model": {}, "recipe": {}, "augment": {}}
    for name, value in candidate.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    cfg = preset("digits").replace(mlp_dim=2 * parts["model"]["hidden_size"], **parts["model"])
    recipe = Recipe(warmup_epochs=10, seed=seed, augment=Augment(**parts["augment"]), **parts["recipe"])
    return cfg, recipe


def teraflop(candidate: Candidate) -> float:
    """The work of one run in the blocks' matrices: 6 operations per weight, token and image."""
    cfg, recipe = schemas(candidate, 0)
    weights = cfg.depth * (4 * cfg.hidden_size**2 + 2 * cfg.hidden_size * cfg.mlp_dim)
    return 6e-12 * weights * (cfg.num_patches + 1) * NUM_TRAIN * recipe.epochs


def folds() -> Iterator[tuple[ImageDataset, Records]]:
    """Training and validation parts, in the order of scikit-learn's file."""
    digits: Any = load_digits()
    images = (digits.images[:NUM_TRAIN] * 15).astype(np.uint8)[..., None]
    raw = [
        {"image": image, "label": int(label)}
        for image, label in zip(images, digits.target[:NUM_TRAIN], strict=True)
    ]
    for held in np.array_split(np.arange(NUM_TRAIN), FOLDS):
        inside = [raw[i] for i in range(NUM_TRAIN) if i not in held]
        outside = [raw[i] for i in held]
        train, validation = (
            Records(part, where="fold", num_classes=10, image_shape=(8, 8, 1))
            for part in (inside, outside)
        )
        yield ImageDataset("digits", train, validation, 10, (8, 8, 1), None, ""), validation


def cross_validate(candidate: Candidate, seed: int, parts: list[tuple[ImageDataset, Records]]) -> dict:
    """Train on each fold's complement.

    Returns:
        Accuracy and loss on all folds together, and the seconds it took.
    """
    cfg, recipe = schemas(candidate, seed)
    per_epoch = min(len(dataset.train) for dataset, _ in parts) // recipe.batch_size
    program = make_program(cfg, recipe, per_epoch)
    quiet = Hooks(
        log=lambda *_: None,
        save=lambda *_: None,
        evaluate=lambda *_: AfterEvaluation(),
        should_stop=lambda: False,
        teach=dict,
        profile=Profile(None, lambda _: nullcontext(), Path()),
    )
    started, scores = time.perf_counter(), []
    for dataset, validation in parts:
        mean, std = channel_statistics(dataset.train)
        preprocess = Preprocess(mean=mean, std=std)
        batches = train_batches(dataset, recipe, preprocess, image_size=(8, 8))
        _, state = run_steps(
            program,
            recipe,
            program.initialise(),
            batches,
            quiet,
            start_step=0,
            steps_per_epoch=per_epoch,
        )
        held = eval_batches(validation, preprocess, image_size=(8, 8), batch_size=recipe.batch_size)
        scores.append(evaluate(program, state.params, held))
    count = sum(score.count for score in scores)
    return {
        "accuracy": sum(score.correct for score in scores) / count,
        "loss": sum(score.loss * score.count for score in scores) / count,
        "folds": [round(score.accuracy, 4) for score in scores],
        "seconds": time.perf_counter() - started,
    }


def main(options: Options) -> None:
    """Search, then decide among the finalists."""
    console = Console()
    parts = list(folds())
    results: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60 * options.minutes

    def run(candidate: Candidate, seed: int) -> dict[str, Any]:
        result = {"seed": seed, **cross_validate(candidate, seed, parts), "candidate": candidate}
        results.append(result)
        console.print(json.dumps(result), soft_wrap=True, highlight=False)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))
        return result

    def better_first(result: dict[str, Any]) -> tuple[float, float]:
        return -result["accuracy"], result["loss"]

    rng = random.Random(options.seed)
    tried = [START]
    run(START, 0)
    while time.monotonic() < deadline:
        candidate = neighbour(min(results, key=better_first)["candidate"], rng)
        if candidate not in tried and teraflop(candidate) <= options.max_teraflop:
            tried.append(candidate)
            run(candidate, 0)
    ranked = sorted(results, key=better_first)
    for result, seed in product(ranked[:FINALISTS], FINAL_SEEDS):
        run(result["candidate"], seed)
    console.print(_table(results))


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(title="cross-validation inside the training half, best first")
    for column in ("accuracy", "runs", "seconds", "candidate"):
        table.add_column(column)
    by_candidate: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_candidate.setdefault(json.dumps(result["candidate"]), []).append(result)
    most = max(len(runs) for runs in by_candidate.values())
    finalists = [runs for runs in by_candidate.values() if len(runs) == most]
    for runs in sorted(finalists, key=lambda runs: -np.mean([run["accuracy"] for run in runs])):
        accuracy = np.mean([run["accuracy"] for run in runs])
        seconds = np.mean([run["seconds"] for run in runs])
        text = ", ".join(f"{name} {value}" for name, value in runs[0]["candidate"].items())
        table.add_row(f"{accuracy:.4f}", str(len(runs)), f"{seconds:.0f}", text)
    return table


if __name__ == "__main__":
    main(tyro.cli(Options))
