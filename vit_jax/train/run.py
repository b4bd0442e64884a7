"""One training run in JAX, from an open data set to final parameters; its folder can be continued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax
from rich.console import Console

from vit_config import Recipe
from vit_config.job import Job
from vit_jax.train import loop
from vit_jax.train.checkpoint import Checkpoints
from vit_jax.train.sharding import Device, Parallel, Sharding, make_program
from vit_train.conduct import Trained, Trainer, conduct, make_task


def train(
    job: Job,
    *,
    data_dir: Path,
    run_dir: Path,
    parallel: Parallel = "jit",
    sharding: Sharding = "replicated",
    devices: Sequence[Device] | None = None,
    console: Console | None = None,
    stop_after: int | None = None,
) -> Trained:
    """Train a job in `run_dir`, or continue it there.

    With the same packages on the same devices the result is bit for bit that of a run without a break.

    SIGINT or SIGTERM ends the run after the step that is under way, with a checkpoint; a second one
    ends it at once, and the last checkpoint stays good.

    Args:
        data_dir: the folder of prepared data sets.
        devices: default: all local ones.
        console: where progress is shown; default: the terminal.
        stop_after: end after this many updates in all, with a checkpoint; 0 writes the initial state.

    Raises:
        ConfigError, DataError, MissingFileError, CheckpointError: the job, the data and the folder do
            not fit together; nothing was trained.
        TrainingError: the loss is not finite.
    """
    with numerics(job.recipe):
        task = make_task(job, data_dir, stop_after)
        program = make_program(
            job.model,
            job.recipe,
            task.steps_per_epoch,
            parallel=parallel,
            sharding=sharding,
            devices=devices,
        )
        kinds = [device.device_kind for device in devices or jax.local_devices()]
        trainer = Trainer(
            framework="jax",
            program=program,
            loop=loop,
            open_checkpoints=lambda folder, manifest: Checkpoints(folder, run_id=manifest.run_id),
            environment=None,
            how={"parallel": parallel, "sharding": sharding, "devices": kinds},
        )
        return conduct(task, trainer, run_dir, console or Console())


@contextmanager
def numerics(recipe: Recipe) -> Iterator[None]:
    """The recipe's floating-point types and matmul precision, for the duration."""
    precision = None if recipe.matmul_precision == "default" else recipe.matmul_precision
    with jax.enable_x64(recipe.dtype == "float64"), jax.default_matmul_precision(precision):
        yield
