"""Train the default digits run from several seeds, and score each on the test half in both frameworks.

python -m evidence.score_digits --seeds 0 1 2
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import tyro

from evidence import ROOT
from parity.porting.models.trained import IMAGES, WEIGHTS, score_in_torch
from vit_jax.evaluate import evaluate_file


@dataclass(frozen=True)
class Options:
    """Train the default digits run from several seeds, and score each on the test half."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    out: Path | None = None
    """Folder of the runs; a finished one is not trained again. Default: a temporary folder."""


def train(run_dir: Path, seed: int) -> None:
    """Run the training command; what it prints is kept unless it fails.

    Raises:
        SystemExit: it failed; with what it printed.
    """
    command = [sys.executable, "train.py", "--recipe.seed", str(seed), "--run-dir", str(run_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"seed {seed}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def main(options: Options) -> None:
    """Print the accuracy of each seed, and the mean."""
    with ExitStack() as stack:
        folder = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        accuracies = []
        for seed in options.seeds:
            run_dir = folder.absolute() / f"seed-{seed}"
            train(run_dir, seed)
            files = run_dir / WEIGHTS, run_dir / IMAGES
            in_jax, in_torch = evaluate_file(*files).accuracy, score_in_torch(*files).accuracy
            print(f"seed {seed}  JAX {in_jax:.4f}  PyTorch {in_torch:.4f}", flush=True)
            accuracies.append((in_jax, in_torch))
        means = [sum(column) / len(accuracies) for column in zip(*accuracies, strict=True)]
        print(f"mean    JAX {means[0]:.4f}  PyTorch {means[1]:.4f}")


if __name__ == "__main__":
    main(tyro.cli(Options))
