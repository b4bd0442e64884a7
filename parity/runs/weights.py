"""Writes the weights of a training run, ended or not, to a weights file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from parity.porting.models.lora import write_lora
from parity.runs.folder import read_manifest, read_run
from vit_config import CheckpointError, ConfigError, write_weights
from vit_config.adapters import export_params
from vit_config.job import Job
from vit_train.folder.about import RunAbout
from vit_train.folder.best import best_so_far
from vit_train.folder.log import FILE as LOG
from vit_train.folder.log import read_log


def write_run_lora(
    folder: Path, out: Path, to: str, step: int | None = None, *, force: bool = False
) -> tuple[int, tuple[str, ...]]:
    """Write a run's adapters and heads, or their average if the recipe keeps one, as PEFT's folder.

    Args:
        to: the dialect of the model that they are loaded onto.
        step: the step of the checkpoint; default: the newest that is whole.

    Returns:
        The step, and the library's names of the layers with adapters.

    Raises:
        ConfigError: the run trains no adapters, or the library has no layers for them.
        MissingFileError, CheckpointError: see `parity.runs.folder.read_run`.
    """
    run = read_run(folder, step, cold=True)
    if run.lora is None:
        raise ConfigError(f"--lora: {folder} trains no adapters; leave --lora out")
    params = run.state.params if run.state.ema is None else run.state.ema
    return run.state.step, write_lora(run.config, run.lora, params, to, out, force=force)


class SourceCheckpoint(NamedTuple):
    """The checkpoint that the weights were taken from."""

    step: int
    why: str
    """Reason for its choice, in words."""
    notes: tuple[str, ...]
    """Notes of reading the run."""


def write_run_weights(folder: Path, out: Path, step: int | None = None) -> SourceCheckpoint:
    """Write a checkpoint's weights, or their average if the recipe keeps one, with adapters merged.

    Args:
        step: the step of the checkpoint; default: the best so far of a run that keeps the best, else the
            newest that is whole.

    Raises:
        MissingFileError: there is no checkpoint, or none of the step.
        CheckpointError: the checkpoint is damaged, or the preprocessing is unknown.
    """
    manifest = read_manifest(folder)
    about = RunAbout.load(folder)
    if about is None:
        raise CheckpointError(
            f"{folder}: does not say how images are prepared, as runs of older versions; go on with it"
            " by the command that began it, which writes that down"
        )
    why = "as asked" if step is not None else "the newest"
    chosen = {name: manifest[name] for name in ("best", "patience") if name in manifest}
    if step is None and chosen and (folder / LOG).is_file():
        run = read_run(folder, cold=True)
        job = Job(run.config, run.recipe, manifest["data"]["name"], **chosen)
        best = best_so_far(job, read_log(folder))
        if best is not None and best.step is not None:
            step, why = best.step, f"the best so far, validation {best.by} {best.value:.4f}"
    run = read_run(folder, step, cold=True)
    trained = run.state.params if run.state.ema is None else run.state.ema
    params = export_params(trained, run.lora, transposed=False)
    write_weights(out, run.config, params, about.preprocess, about.provenance)
    return SourceCheckpoint(run.state.step, why, run.notes)
