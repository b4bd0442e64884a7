"""One training run in PyTorch, in the same order and on the same batches as in JAX."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console

from vit_config.job import Job
from vit_torch.train import loop
from vit_torch.train.checkpoint import Checkpoints
from vit_torch.train.program import make_program, numerics
from vit_train.conduct import Trained, Trainer, conduct, make_task
from vit_train.manifest import Manifest

COMPUTING = ("torch", "numpy")
"""Packages that decide how a step rounds: a run may go on with others."""


def train(
    job: Job,
    *,
    data_dir: Path,
    run_dir: Path,
    console: Console | None = None,
    stop_after: int | None = None,
) -> Trained:
    """Train a job in `run_dir`, or continue it there, as `vit_jax.train.run.train` does.

    On a CPU, with the same packages and as many threads, the result is bit for bit that of a run
    without a break. torch's default generator is left in another state.

    Args:
        data_dir: the folder of prepared data sets.
        console: where progress is shown; default: the terminal.
        stop_after: end after this many updates in all, with a checkpoint; 0 writes the initial state.

    Returns:
        What the run ended with, parameters in PyTorch's layout.

    Raises:
        ConfigError, DataError, MissingFileError, CheckpointError: the job, the data and the folder do
            not fit together; nothing was trained.
        TrainingError: the loss is not finite.
    """

    def open_checkpoints(folder: Path, manifest: Manifest) -> nullcontext[Checkpoints]:
        fingerprint = manifest["data"]["fingerprint"]
        return nullcontext(Checkpoints(folder, run_id=manifest.run_id, job=job, fingerprint=fingerprint))

    with numerics(job.recipe):
        task = make_task(job, data_dir, stop_after)
        program = make_program(job.model, job.recipe, task.steps_per_epoch)
        trainer = Trainer(
            framework="torch",
            program=program,
            loop=loop,
            open_checkpoints=open_checkpoints,
            environment={name: version(name) for name in COMPUTING},
            how={"devices": [str(program.device)], "threads": torch.get_num_threads()},
        )
        return conduct(task, trainer, run_dir, console or Console())
