"""Why the paper's model stays at chance on MNIST: its recipe to the end, with one field changed.

    python -m evidence.measurements.paper_decay

Prints the share of parameters whose decay is larger than the first step's gradient; then for each change
the accuracy of the original's code, and without decay that of the twins too.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evidence import mnist_page as page
from evidence import positional
from tests.support.originals import ORIGINALS
from vit_config import read_weights
from vit_config.job import Job
from vit_train.batches.data import open_dataset, train_batches
from vit_train.batches.fit import make_preprocess
from vit_train.data.dataset import ImageDataset

CASE = page.CASES[2]
NO_DECAY = {"weight_decay": 0.0, "decay": "matrices"}
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "decay 0.001": {"weight_decay": 1e-3},
    "learning rate 0.0003": {"learning_rate": 3e-4},
    "no decay": NO_DECAY,
}


def main() -> None:
    """Train each, and print a line for each."""
    torch.set_num_threads(1)
    dataset, job = open_dataset("mnist5k", Path()), page.job_of(CASE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = page.write_start(CASE, job, folder)
        print(f"{share_of_decay(job, start, dataset):.0%} of the parameters: decay above the gradient")
        for label, change in CHANGES.items():
            changed = replace(job, recipe=job.recipe.replace(**change))
            show(label, "original", page.by_original(CASE, changed, start, dataset, torch.float32))
        flags = [f"--recipe.{key.replace('_', '-')}={value}" for key, value in NO_DECAY.items()]
        for twin in page.TWINS:
            run = page.by_twin(CASE, start, folder / twin, twin, "--no-check", *flags)
            show("no decay", twin, run)


def share_of_decay(job: Job, start: Path, dataset: ImageDataset) -> float:
    """Return the share of parameters whose decay is larger than the first step's gradient."""
    recipe, size = job.recipe, job.model.image_size
    model = ORIGINALS[CASE.preset](job.model).load(read_weights(start).arrays)
    read = train_batches(dataset, recipe, make_preprocess(dataset, recipe), image_size=size)
    images, labels = next(page.placed(read, torch.float32))
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    both = [(each, each.grad) for each in model.parameters() if each.grad is not None]
    larger = [recipe.weight_decay * each.abs() > grad.abs() for each, grad in both]
    return torch.cat([each.ravel() for each in larger]).double().mean().item()


def show(label: str, side: str, run: page.Run) -> None:
    """Print what a run came to."""
    print(f"{label:<20}  {side:<8}  accuracy {run.accuracy:.3f}", flush=True)


if __name__ == "__main__":
    positional(__doc__)
    main()
