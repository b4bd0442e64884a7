"""``parity train``: train the JAX twin, export the weights, port them to PyTorch, and compare."""

from __future__ import annotations

import shlex
from functools import partial
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from parity.options import parse
from vit_config.scoring import Score

CHECKED_IMAGES = 16
"""Test images in the batch on which the twins are compared."""


def main(argv: list[str], prog: str = "parity train") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if the twins differ; 130 if the run was interrupted.
    """
    request = parse(argv, prog=prog)
    from vit_jax.train.run import train

    job, run_dir = request.job, request.run_dir
    console = Console(width=None if Console().is_terminal else 110)
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    say(f"run folder {run_dir}")
    trained = train(
        job,
        data_dir=request.data_dir,
        run_dir=run_dir,
        parallel=request.parallel,
        sharding=request.sharding,
        console=console,
    )
    if trained.test is None:
        say(f"stopped after step {trained.step}; to continue: {prog} {shlex.join(argv)}".rstrip())
        return 130

    from parity.commands.plot import draw_curves
    from parity.port import IMAGES, WEIGHTS, export, score_in_torch, write_images
    from vit_jax.evaluate import evaluate_file

    weights, images = run_dir / WEIGHTS, run_dir / IMAGES
    export(weights, job.model, trained.params, trained.preprocess)
    raw = write_images(images, trained.dataset.test, job.model, trained.preprocess)
    if len(raw) < trained.test.count:
        say(f"{images} has {len(raw)} of the {trained.test.count} test images, evenly spread, for size")
    scores = {
        f"JAX, at the end of training, {job.recipe.dtype}": trained.test,
        "JAX, from the weights file": evaluate_file(weights, images),
    }
    say(f"weights {weights}, curves {draw_curves(run_dir)}")
    if find_spec("torch") is None:
        console.print(score_table(scores))
        say(
            f"PyTorch is not installed: score {weights} elsewhere with"
            f" `python -m vit_torch.evaluate {shlex.join([str(weights), str(images)])}`"
        )
        return 0

    from parity.check import check_weights
    from parity.report import print_report

    try:
        port = "PyTorch, from the weights file, in a process without JAX"
        scores[port] = score_in_torch(weights, images)
    finally:  # whatever PyTorch does, what JAX scored is shown
        console.print(score_table(scores))
    batch = trained.preprocess.normalise(raw[:CHECKED_IMAGES])
    report = check_weights(weights, images=batch, dtypes=("float64", "float32"))
    print_report(report)
    return 0 if report.passed else 1


def score_table(scores: dict[str, Score]) -> Table:
    """Loss and accuracy by who computed them."""
    table = Table(title="test set", title_justify="left")
    table.add_column("computed by")
    for column in ("loss", "right", "accuracy"):
        table.add_column(column, justify="right")
    for name, score in scores.items():
        table.add_row(
            name, f"{score.loss:.6f}", f"{score.correct}/{score.count}", f"{score.accuracy:.4f}"
        )
    return table
