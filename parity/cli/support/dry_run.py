"""``--dry-run``: print what a run will be and cost, before it begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Console

from parity.cli.support.base_recipe import PUBLISHED
from parity.cli.support.train_options import Request
from vit_config import MissingFileError
from vit_config.costs import costs
from vit_train.batches.data import open_dataset, steps_per_epoch
from vit_train.batches.fit import fit_dataset, hold_out
from vit_train.dry_run import Rehearsal, rehearsal_task, rehearse
from vit_train.trainer import Trainer

MIB, MILLION, GIGA = 2**20, 1e6, 1e9


def dry_run(
    request: Request, make_trainer: Callable[..., Trainer[Any, Any, Any]], console: Console
) -> int:
    """Build everything, take two steps on random images, print the results, and write nothing.

    Returns:
        0.
    """
    recipe, batch = request.job.recipe, request.flags.dry_run_batch or request.job.recipe.batch_size
    examples, note = _examples(request)
    start = request.read_start()
    tried = dataclasses.replace(request.job, recipe=recipe.replace(batch_size=batch))
    task = rehearsal_task(tried, start, request.read_teacher())
    if examples is not None:  # schedules are told the true number of steps
        task = dataclasses.replace(task, steps_per_epoch=steps_per_epoch(examples, recipe.batch_size))
    trial = rehearse(task, make_trainer(task, **request.spread))
    lines = [f"run folder {request.home}", *request.notes, *(start.account if start else ())]
    lines.append(_model(request, trial))
    lines.append(
        f"memory  {trial.state_bytes / MIB:,.1f} MiB of parameters, moments and averages{_peak()}"
    )
    of = "" if batch == recipe.batch_size else f" of {batch} images"
    speed = batch / trial.step_seconds
    rate = f"{trial.step_seconds:.3g} s a step{of}, {speed:,.{0 if speed > 10 else 2}f} images/s"
    lines.append(
        f"speed   {rate}, the data not counted; the first step took {trial.first_seconds:.3g} s"
    )
    if examples is None:
        lines.append(f"steps   unknown: {note}")
    else:
        total = recipe.epochs * task.steps_per_epoch
        whole = timedelta(seconds=round(total * trial.step_seconds * recipe.batch_size / batch))
        lines.append(
            f"steps   {total:,}: {recipe.epochs} epochs of {task.steps_per_epoch:,}, batches of"
            f" {recipe.batch_size}, {examples:,} examples{note}; {whole} in all"
        )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def _examples(request: Request) -> tuple[int | None, str]:
    """Return the number of training examples, and a note on its origin; None, and why, if unknown."""
    name, fraction = request.job.data, request.job.recipe.validation_fraction
    try:
        dataset = open_dataset(name, request.data_dir)
    except MissingFileError as error:
        if name not in PUBLISHED:
            return None, str(error)
        return PUBLISHED[name] - round(PUBLISHED[name] * fraction), ", as published: the set is not here"
    dataset, _ = hold_out(fit_dataset(request.job.model, dataset), fraction)
    return len(dataset.train), ""


def _model(request: Request, trial: Rehearsal) -> str:
    flops = f"{costs(request.job.model).flops / GIGA:.3g} G forward for an image"
    trained = "" if trial.trained == trial.parameters else f", {trial.trained:,} of them trained"
    return f"model   {trial.parameters:,} parameters{trained}; FLOPs {flops}"


def _peak() -> str:
    try:
        import resource
    except ImportError:  # Windows has none
        return ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB on Linux
    return f"; the process peaked at {peak * 1024 / MIB:,.0f} MiB"
