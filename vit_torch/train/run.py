"""One training run in PyTorch: this framework's side of `vit_train`; a run's folder can be continued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from rich.console import Console

from vit_config.adapters import export_params
from vit_config.job import Job
from vit_config.screen import screen
from vit_torch.optim import Ema
from vit_torch.teacher import make_teacher
from vit_torch.train.checkpoint import Checkpoints
from vit_torch.train.program import make_program, numerics
from vit_torch.train.state import StoredState, TrainState
from vit_torch.weights import from_numpy
from vit_train.conduct import RunResult, conduct
from vit_train.folder.manifest import Manifest
from vit_train.task import Task, TaskOptions, make_task
from vit_train.trainer import Trainer

__all__ = ["make_trainer", "numerics", "train"]


def train(
    job: Job,
    *,
    data_dir: Path,
    run_dir: Path,
    console: Console | None = None,
    **options: Unpack[TaskOptions],
) -> RunResult:
    """Train a job in `run_dir`, or continue it there, as `vit_train.conduct.conduct` does.

    On a CPU, with the same packages and as many threads, the result is bit for bit that of a run
    without a break. torch's default generator is left in another state.

    Args:
        data_dir: the folder of prepared data sets.
        console: where progress is shown; default: the terminal.
        options: see `vit_train.task.TaskOptions`.

    Returns:
        The run's result, with parameters in PyTorch's layout.

    Raises:
        ConfigError, DataError, MissingFileError, CheckpointError: the job, the data and the folder do
            not fit together; nothing was trained.
        TrainingError: the loss is not finite.
    """
    with numerics(job.recipe):
        task = make_task(job, data_dir, **options)
        return conduct(task, make_trainer(task), run_dir, console or screen())


def make_trainer(
    task: Task, *, device: torch.device | None = None
) -> Trainer[TrainState, StoredState, Ema]:
    """Build the model and the optimiser of a task as one program; use it under `numerics`.

    Args:
        device: default: the GPU that torch sees, else the CPU.

    Raises:
        ConfigError: the recipe asks for a kernel of JAX.
    """
    job = task.job
    program = make_program(
        job.model, job.recipe, task.steps_per_epoch, device=device, frozen=task.frozen, lora=job.lora
    )

    def open_checkpoints(folder: Path, manifest: Manifest, keep: int) -> nullcontext[Checkpoints]:
        about = {"job": job, "fingerprint": manifest["data"]["fingerprint"], "keep": keep}
        return nullcontext(Checkpoints(folder, run_id=manifest.run_id, **about))

    return Trainer(
        framework="torch",
        program=program,
        with_arrays=with_arrays,
        open_checkpoints=open_checkpoints,
        trace=trace,
        export=partial(export_params, lora=job.lora, transposed=False),
        make_teacher=make_teacher,
        how={"devices": [str(program.device)], "threads": torch.get_num_threads()},
    )


@contextmanager
def trace(folder: Path) -> Iterator[None]:
    """Run torch's profiler for the duration; write a trace for TensorBoard and chrome://tracing."""
    with torch.profiler.profile() as profiler:
        yield
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / "trace.pt.trace.json"))


def with_arrays(state: StoredState, arrays: Mapping[str, np.ndarray]) -> StoredState:
    """Replace parameters in a host state before the first update; the average starts from them."""
    given = {name: from_numpy(array).to(state["model"][name].dtype) for name, array in arrays.items()}
    model = {**state["model"], **given}
    ema = None if state["ema"] is None else {name: model[name].clone() for name in state["ema"]}
    return {**state, "model": model, "ema": ema}
