"""Train a Vision Transformer in JAX or PyTorch, export it, and show that both frameworks read it alike.

    python train.py                                     the digits, in JAX
    python train.py --framework torch --help            every flag: a field of the model or of the recipe
    python train.py plot runs/digits                    draw what a run has learned
    python train.py eval runs/digits                    accuracy, classes, calibration; predict RUN IMAGE
    python train.py preflight --topology v5e:2x4        whether a run fits a TPU slice; none is needed

`parity train` is the same, from the same pieces, where the package is installed.
"""

from __future__ import annotations

import sys
from typing import Any

from parity.cli import run
from parity.cli.dispatch import ended, in_one_line

PROG = "python train.py"
OTHERS = ("plot", "eval", "predict", "preflight")
"""Commands for before and after a run."""


def main(argv: list[str]) -> int:
    """Train, or go on where the run's folder ends; the exit status."""
    from parity.cli.support import after_training
    from parity.cli.support.train_options import parse

    # what: a model, a recipe and a data set, by flags, a preset or a file
    request = parse(argv, prog=PROG)
    if request.framework == "torch":
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
        if request.dry_run:
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
        return after_training.say_stopped(request, trained, console, [PROG, *argv])
    # the weights go home: one file, scored by both twins, and the two compared
    weights, images = after_training.export_run(request, trained, console)
    return after_training.score_and_compare(request, trained, weights, images, console)


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    if command in OTHERS:
        sys.exit(ended(run(command, rest, prog=f"{PROG} {command}")))
    sys.exit(ended(in_one_line(lambda: main(sys.argv[1:]), PROG)))
