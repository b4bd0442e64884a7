"""What the recipe of `--init` gains over AdamW alone, on few labelled images of new classes.

    python -m evidence.measurements.fine_tuning [SEEDS]

scikit-learn's handwritten digits in the order of their writers, as image folders: the zeros to fours of
the first third train the `digits` model by half of its own recipe; from there, a model of all ten digits
is fine-tuned on some images of the second third, and tested on the last, which others wrote. Every row
is the mean over seeds, which draw the images, the new head, the order and the augmentation.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from evidence import positional
from parity.cli.support.train_options import parse
from parity.runs.weights import write_run_weights
from vit_config import Recipe
from vit_config.job import Job
from vit_config.screen import screen
from vit_torch.train.run import make_trainer, numerics
from vit_train.conduct import conduct
from vit_train.task import make_task

THIRD = 599
KNOWN = 5
"""Classes that the weights to start from know."""
COUNTS = (150, 300)
"""Images to fine-tune on."""
QUIET = screen(quiet=True)

PHOTOGRAPHS = (
    *("--recipe.augment.flip", "--recipe.augment.crop", "torchvision"),
    *("--recipe.augment.crop-area", "0.35", "1"),
)
"""The recipe's changes to images whose classes are not called like characters."""

WAYS: dict[str, tuple[Callable[[Recipe], Recipe], tuple[str, ...]]] = {
    "AdamW at 1e-3, 10 epochs of 128": (lambda recipe: Recipe(seed=recipe.seed), ()),
    "AdamW at 1e-3, as many steps": (
        lambda recipe: Recipe(seed=recipe.seed, epochs=recipe.epochs, batch_size=recipe.batch_size),
        (),
    ),
    "the recipe of --init": (lambda recipe: recipe, ()),
    "the same with crops and flips": (lambda recipe: recipe, PHOTOGRAPHS),
}
"""Each way to fine-tune: what it makes of the recipe, and the flags that it adds."""


def write(folder: Path, indices: Any, classes: int = 10) -> None:
    """Write some of the digits as a split of an image folder."""
    known: Any = load_digits()
    for index in indices:
        if (label := int(known.target[index])) < classes:
            place = folder / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((known.images[index] * 15).astype(np.uint8)).save(place / f"{index}.png")


def accuracy(run_dir: Path, *flags: str, change: Callable[[Recipe], Recipe] = lambda r: r) -> float:
    """Train by a command line, the recipe changed, and test."""
    asked = parse([*flags, "--run-dir", str(run_dir), "--framework", "torch"], prog="train.py")
    job = Job(**{**vars(asked.job), "recipe": change(asked.job.recipe)})
    with numerics(job.recipe):
        task = make_task(job, asked.data_dir, **asked.options)
        trained = conduct(task, make_trainer(task), run_dir, QUIET)
    assert trained.test is not None
    return trained.test.accuracy


def rows(folder: Path, seeds: int) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield each way with its accuracies, by number of images and by seed."""
    first, second, third = (range(k * THIRD, (k + 1) * THIRD) for k in range(3))
    write(folder / "known" / "train", first, KNOWN)
    write(folder / "known" / "val", second, KNOWN)
    known = ("--data", f"folder:{folder / 'known'}", "--preset", "digits")
    accuracy(folder / "start", *known, "--model.num-classes", str(KNOWN), "--recipe.epochs", "100")
    weights = folder / "start.safetensors"
    write_run_weights(folder / "start", weights)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(second)
        for count in COUNTS:
            write(folder / f"{count}-{seed}" / "train", order[:count])
            write(folder / f"{count}-{seed}" / "val", third)
    for name, (change, flags) in WAYS.items():
        accuracies: list[list[float]] = []
        for count in COUNTS:
            accuracies.append([])
            for seed in range(seeds):
                data = folder / f"{count}-{seed}"
                run_dir = folder / f"run-{count}-{seed}-{len(name)}-{name[-5:]}"
                common = ("--init", str(weights), "--data", f"folder:{data}", *flags)
                common += ("--model.num-classes", "10", "--recipe.seed", str(seed))
                accuracies[-1].append(accuracy(run_dir, *common, change=change))
        yield name, accuracies


def main(seeds: int) -> int:
    torch.set_num_threads(1)  # threads of so small a model wait for each other
    print(f"torch {version('torch')}, scikit-learn {version('scikit-learn')}; {seeds} seeds")
    print(f"| accuracy on {THIRD} images | {' | '.join(f'{count} images' for count in COUNTS)} |")
    print("|---" * (1 + len(COUNTS)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, accuracies in rows(Path(folder), seeds):
            cells = (f"{np.mean(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in accuracies)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*positional(__doc__, seeds=5)))
