"""One training run in JAX: this framework's side of `vit_train`; a run's folder can be continued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import jax
import numpy as np
from rich.console import Console

from vit_config import Recipe
from vit_config.adapters import export_params
from vit_config.job import Job
from vit_config.screen import screen
from vit_jax.functional import Params
from vit_jax.leaves import leaves
from vit_jax.scanned import UNROLLED, Remat, Scan, account, choose_loop
from vit_jax.step import Metrics, TrainState
from vit_jax.teacher import make_teacher
from vit_jax.train.augment import make_changes
from vit_jax.train.checkpoint import Checkpoints
from vit_jax.train.hosts import make_hosts
from vit_jax.train.mesh import ONE_AXIS
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.program import CompiledRun, Device
from vit_jax.train.spread import make_program
from vit_jax.weights import abstract_model
from vit_train.conduct import RunResult, conduct
from vit_train.task import Task, TaskOptions, make_task
from vit_train.trainer import Trainer

Parallel = Literal["jit", "pmap"]


def train(
    job: Job,
    *,
    data_dir: Path,
    run_dir: Path,
    parallel: Parallel = "jit",
    mesh: str = ONE_AXIS,
    scan: Scan = "auto",
    remat: Remat = "none",
    devices: Sequence[Device] | None = None,
    console: Console | None = None,
    **options: Unpack[TaskOptions],
) -> RunResult:
    """Train a job in `run_dir`, or continue it there, as `vit_train.conduct.conduct` does.

    With the same packages on the same devices the result is bit for bit that of a run without a break.

    Args:
        data_dir: the folder of prepared data sets.
        parallel: `jax.jit` over the mesh, or `jax.pmap`, which has none.
        mesh: the mesh's axes, such as ``data=4,fsdp=2``.
        scan, remat: how the blocks are run, see `vit_jax.scanned`.
        devices: default: all devices of all hosts.
        console: where progress is shown; default: the terminal.
        options: see `vit_train.task.TaskOptions`.

    Raises:
        ConfigError, DataError, MissingFileError, CheckpointError: the job, the data and the folder do
            not fit together; nothing was trained.
        TrainingError: the loss is not finite.
    """
    with numerics(job.recipe):
        task = make_task(job, data_dir, **options)
        how: dict[str, Any] = {"scan": scan, "remat": remat, "devices": devices}
        trainer = make_trainer(task, parallel=parallel, mesh=mesh, **how)
        return conduct(task, trainer, run_dir, console or screen())


def make_trainer(
    task: Task,
    *,
    parallel: Parallel = "jit",
    mesh: str = ONE_AXIS,
    scan: Scan = "auto",
    remat: Remat = "none",
    devices: Sequence[Device] | None = None,
) -> Trainer[TrainState, TrainState, Params]:
    """Build the model and the optimiser of a task as one compiled program; use it under `numerics`.

    Raises:
        ConfigError, InputError: the devices cannot run it; see `vit_jax.train.spread.make_program` and
            `vit_jax.train.pmap.make_pmap_program`.
    """
    job = task.job
    everywhere = devices or jax.devices()
    loop = choose_loop(scan, remat, depth=job.model.depth, platform=everywhere[0].platform)
    rest: dict[str, Any] = {
        "devices": devices,
        "frozen": task.frozen,
        "lora": job.lora,
        "loop": loop,
    }
    if parallel == "pmap":
        how = {"parallel": parallel}
        program = make_pmap_program(job.model, job.recipe, task.steps_per_epoch, **rest)
    else:
        how = {"mesh": mesh}
        program = make_program(job.model, job.recipe, task.steps_per_epoch, **how, **rest)
    kinds = [device.device_kind for device in everywhere]
    notes = () if loop == UNROLLED else (account(abstract_model(job.model).blocks, loop),)
    return Trainer(
        framework="jax",
        program=_without_transfers(_with_changes(program, task)),
        with_arrays=partial(with_arrays, job),
        open_checkpoints=lambda folder, manifest, keep: Checkpoints(
            folder, run_id=manifest.run_id, keep=keep
        ),
        trace=jax.profiler.trace,
        export=partial(export_params, lora=job.lora, transposed=True),
        make_teacher=make_teacher,
        how={**how, **loop._asdict(), "devices": kinds},
        notes=notes,
        hosts=make_hosts(program.rows),
    )


def with_arrays(job: Job, state: TrainState, arrays: Mapping[str, np.ndarray]) -> TrainState:
    """Replace parameters in a numpy state before the first update; the average starts from them."""
    by_name = {leaf.name: leaf for leaf in leaves(abstract_model(job.model))}
    given = {
        name: np.ascontiguousarray(
            by_name[name].from_common(array) if name in by_name else array  # an adapter's, as it is
        ).astype(state.params[name].dtype)
        for name, array in arrays.items()
    }
    params = {**state.params, **given}
    ema = None if state.ema is None else {name: value.copy() for name, value in params.items()}
    return state._replace(params=params, ema=ema)


def _with_changes(program: CompiledRun, task: Task) -> CompiledRun:
    """Change the images of each batch once they are on the devices, if the recipe says so."""
    job = task.job
    if job.recipe.device_side is None:
        return program
    changes = make_changes(job.recipe, task.preprocess, job.model.image_size)
    return replace(program, place_batch=lambda batch: changes(program.place_batch(batch)))


def _without_transfers(program: CompiledRun) -> CompiledRun:
    """Make a step fail that copies to or from the devices implicitly, which is a defect."""

    def train_step(state: TrainState, batch: Mapping[str, Any]) -> tuple[TrainState, Metrics]:
        with jax.transfer_guard("disallow"):
            return program.train_step(state, dict(batch))

    return replace(program, train_step=train_step)


@contextmanager
def numerics(recipe: Recipe) -> Iterator[None]:
    """Set the recipe's floating-point types and matmul precision for the duration."""
    precision = None if recipe.matmul_precision == "default" else recipe.matmul_precision
    with jax.enable_x64(recipe.dtype == "float64"), jax.default_matmul_precision(precision):
        yield
