"""The end of a training run: its weights are written, scored by both twins, and the two compared."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from parity.cli.support.train_options import Request
from vit_train.frameworks import NAMES, Framework

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from vit_config.scoring import Score
    from vit_train.conduct import RunResult

CHECKED_IMAGES = 16
"""Test images in the batch on which the twins are compared."""


def say(console: Console, text: str) -> None:
    """Print one line as it is, however long."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def make_console(*, quiet: bool = False) -> Console:
    """Return a console for the terminal; without one, tables have room for their columns."""
    from vit_config.screen import screen

    return screen(110, quiet=quiet)


def status(request: Request, trained: RunResult) -> int:
    """Return 0 for a run that reached its end, or its --stop-after; 130 if it was interrupted."""
    enough = request.flags.stop_after is not None and trained.step >= request.flags.stop_after
    return 0 if trained.test or enough else 130


def say_stopped(request: Request, trained: RunResult, console: Console, command: list[str]) -> int:
    """Print how to continue a stopped run.

    Args:
        command: the command line, from the program's name on.

    Returns:
        0 if the run was to end here, 130 if it was interrupted.
    """
    enough = status(request, trained) == 0
    prog, *argv = command
    again = shlex.join(_without_stop(argv) if enough else argv)
    note = ", as asked" if enough else ""
    say(console, f"stopped after step {trained.step}{note}; to continue: {prog} {again}".rstrip())
    return 0 if enough else 130


def export_run(request: Request, trained: RunResult, console: Console) -> tuple[Path, Path]:
    """Write the weights and the test images into the run's folder, and draw its curves.

    Returns:
        The files of weights and of images.
    """
    from parity.cli.plot import draw_curves, show_curve
    from parity.porting.models.trained import IMAGES, WEIGHTS, write_images, write_trained

    cfg, run_dir = request.job.model, request.run_dir
    weights, images = run_dir / WEIGHTS, run_dir / IMAGES
    how = {"framework": request.flags.framework, "provenance": trained.provenance}
    write_trained(weights, cfg, trained.params, trained.preprocess, **how)
    written = write_images(images, trained.dataset.test, cfg, trained.preprocess)
    count = trained.test.count if trained.test else len(trained.dataset.test)
    if len(written) < count:
        say(
            console,
            f"{images} has {len(written)} of the {count} test images, evenly spaced, to keep it small",
        )
    show_curve(run_dir, console)
    say(console, f"weights {weights}, curves {draw_curves(run_dir)}")
    if request.mirror:
        request.mirror.send()
        say(console, f"copied to {request.mirror.url}")
    return weights, images


def score_and_compare(
    request: Request, trained: RunResult, weights: Path, images: Path, console: Console
) -> int:
    """Score a weights file in both twins, PyTorch's in a process without JAX, and compare the two.

    Where a framework is not installed, print how to score the file elsewhere; with --no-check, show the
    score at the end of training alone.

    Returns:
        0; 1 if the twins differ.
    """
    from parity.measure.tables import show_table
    from parity.porting.models.trained import score_in_torch

    assert trained.test is not None
    there: dict[Framework, bool] = {name: find_spec(name) is not None for name in NAMES}
    here = NAMES[request.flags.framework]
    scores = {f"{here}, at the end of training, {request.job.recipe.dtype}": trained.test}
    if not request.flags.check:
        show_table(score_table(scores), console)
        say(console, f"the twins are not compared, as asked; `parity check {weights}` does so")
        return 0
    try:
        if there["jax"]:
            from vit_jax.evaluate import evaluate_file

            scores["JAX, from the weights file"] = evaluate_file(weights, images)
        if there["torch"]:
            port = "PyTorch, from the weights file, in a process without JAX"
            scores[port] = score_in_torch(weights, images)
    finally:  # show the first score even if the second fails
        show_table(score_table(scores), console)
    missing: list[Framework] = [name for name, installed in there.items() if not installed]
    for framework in missing:
        files = shlex.join([str(weights), str(images)])
        say(
            console,
            f"{NAMES[framework]} is not installed: score {weights} elsewhere with"
            f" `python -m vit_{framework}.evaluate {files}`",
        )
    return _compare(trained, weights, images) if all(there.values()) else 0


def _compare(trained: RunResult, weights: Path, images: Path) -> int:
    import numpy as np

    from parity.twins.check import check_weights
    from parity.twins.check_report import print_report

    with np.load(images) as file:
        batch = trained.preprocess.normalise(file["images"][:CHECKED_IMAGES])
    report = check_weights(weights, images=batch, dtypes=("float64", "float32"))
    print_report(report)
    return 0 if report.passed else 1


def score_table(scores: dict[str, Score]) -> Table:
    """Return a table of loss and accuracy by who computed them."""
    from rich.table import Table

    table = Table(title="test set", title_justify="left")
    table.add_column("computed by")
    for column in ("loss", "right", "accuracy"):
        table.add_column(column, justify="right")
    for name, score in scores.items():
        table.add_row(
            name, f"{score.loss:.6f}", f"{score.correct}/{score.count}", f"{score.accuracy:.4f}"
        )
    return table


def _without_stop(argv: list[str]) -> list[str]:
    """Return a valid command line without its --stop-after."""
    words = iter(argv)
    rest = []
    for word in words:
        if word.replace("_", "-") == "--stop-after":
            next(words)
        elif not word.replace("_", "-").startswith("--stop-after="):
            rest.append(word)
    return rest
