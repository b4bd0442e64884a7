"""``parity train``, and ``train.py``: train either twin, export it, score it in both frameworks."""

from __future__ import annotations

from typing import Any

from parity.cli.support import after_training
from parity.cli.support.train_options import parse


def main(argv: list[str], prog: str = "parity train") -> int:
    """Train, or go on where the run's folder ends; `prog` is what the user calls the command.

    Returns:
        0; 1 if the twins differ; 130 if the run was interrupted.
    """
    # what: a model, a recipe and a data set, by flags, a preset or a file
    request = parse(argv, prog=prog)
    if request.flags.framework == "torch":
        from vit_torch.train.run import make_trainer, numerics
    else:
        from vit_jax.host_memory import keep_freed_memory
        from vit_jax.train.run import make_trainer, numerics

        keep_freed_memory()
    from parity.cli.support.dry_run import dry_run
    from vit_train.conduct import conduct
    from vit_train.task import make_task
    from vit_train.trainer import Trainer

    # alone, or as one of several processes, of which the first speaks for all
    with request.together() as leads, numerics(request.job.recipe):
        console = after_training.make_console(quiet=not leads)
        if request.flags.dry_run:
            return dry_run(request, make_trainer, console)
        # the data, and the weights to start from, opened and seen to fit the model
        task = make_task(request.job, request.data_dir, **request.options)
        # the model, its optimiser and one step, compiled for the devices
        trainer: Trainer[Any, Any, Any] = make_trainer(task, **request.spread)
        # the loop: from the newest checkpoint, or from the start
        trained = conduct(task, trainer, request.run_dir, console, request.home)
    if not leads:
        return after_training.status(request, trained)
    if trained.test is None:
        return after_training.say_stopped(request, trained, console, [prog, *argv])
    # the weights go home: one file, scored by both twins, and the two compared
    weights, images = after_training.export_run(request, trained, console)
    return after_training.score_and_compare(request, trained, weights, images, console)
